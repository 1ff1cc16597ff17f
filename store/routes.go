package store

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

const (
	readRoutes   = `SELECT r.topic, r.stream FROM {schema}.outlane_routes r ORDER BY r.position`
	deleteRoutes = `DELETE FROM {schema}.outlane_routes`
	insertRoutes = `INSERT INTO {schema}.outlane_routes (position, topic, pattern, stream)
		SELECT r.position, r.topic, r.pattern, r.stream
		FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS r(topic, pattern, stream, position)`
)

// Routes lists the routes in the database. The first one that matches gives an event its stream.
func (s *Store) Routes(ctx context.Context) ([]Route, error) {
	var list []Route
	err := s.run(ctx, "read routes", call{sql: readRoutes, row: func(r pgx.Rows) error {
		var route Route
		if err := r.Scan(&route.Topic, &route.Stream); err != nil {
			return err
		}
		list = append(list, route)
		return nil
	}})
	return list, err
}

// ReplaceRoutes makes routes the ones in the database. Inserts that begin after it go by them.
func (s *Store) ReplaceRoutes(ctx context.Context, routes []Route) error {
	topics, patterns, streams := []string{}, []string{}, []string{}
	for _, r := range routes {
		topics, patterns, streams = append(topics, r.Topic), append(patterns, topicPattern(r.Topic)), append(streams, r.Stream)
	}
	return s.run(ctx, "replace routes", call{sql: deleteRoutes}, call{sql: insertRoutes, args: []any{topics, patterns, streams}})
}

// topicPattern writes a topic with wildcards as a regular expression of Postgres.
func topicPattern(topic string) string {
	tokens := strings.Split(topic, ".")
	for i, token := range tokens {
		switch {
		case token == "*":
			tokens[i] = `[^.]+`
		case token == ">" && i == len(tokens)-1:
			tokens[i] = `.+`
		default:
			tokens[i] = quoteRegexp(token)
		}
	}
	return "^" + strings.Join(tokens, `\.`) + "$"
}

// quoteRegexp takes their meaning from all characters that have one.
func quoteRegexp(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune(`\.+*?()[]{}|^$`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
