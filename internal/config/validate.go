package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// validate checks what a single value's range does not say.
func (c *Config) validate(bad *problems) {
	c.validateNames(bad)
	c.validateAddresses(bad)
	c.validateCredentials(bad)
	c.validateLease(bad)
	if c.Worker.BatchBytes > c.Worker.Memory {
		c.fault(bad, "worker.batchBytes", "is %s, above worker.memory of %s; lower it or raise the memory", c.Worker.BatchBytes, c.Worker.Memory)
	}
	c.validateRoutes(bad)
	c.validateStreams(bad)
}

// fault adds a problem of the value of path, with its origin.
func (c *Config) fault(bad *problems, path, format string, args ...any) {
	bad.add(path, "%s%s %s", path, c.Origin(path).phrase(), fmt.Sprintf(format, args...))
}

func (c *Config) validateNames(bad *problems) {
	if c.PartitionKeyField == "" {
		c.fault(bad, "partitionKeyField", "is empty; name a field of the payload")
	}
	const longestID = 200
	if id := c.Worker.ID; len(id) > longestID || strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
		c.fault(bad, "worker.id", "has a space, a control character or more than %d bytes; use letters, digits, dots and dashes", longestID)
	}
	const longestName = 63
	switch schema := c.Database.Schema; {
	case schema == "":
		c.fault(bad, "database.schema", "is empty; name a schema, such as public")
	case len(schema) > longestName:
		c.fault(bad, "database.schema", "is longer than %d bytes; Postgres would cut it", longestName)
	case strings.HasPrefix(schema, "pg_"):
		c.fault(bad, "database.schema", "is %q; Postgres keeps names that begin with pg_ for itself", schema)
	}
}

func (c *Config) validateAddresses(bad *problems) {
	if url := c.Database.URL; url != "" {
		isURL := strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
		if !isURL && (strings.Contains(url, "://") || !strings.Contains(url, "=")) {
			c.fault(bad, "database.url", "is no Postgres URL; write postgres://user@host:5432/database")
		}
	}
	for server := range strings.SplitSeq(c.NATS.URL, ",") {
		scheme, _, ok := strings.Cut(strings.TrimSpace(server), "://")
		if ok && !slices.Contains([]string{"nats", "tls", "ws", "wss"}, strings.ToLower(scheme)) || c.NATS.URL != "" && strings.TrimSpace(server) == "" {
			c.fault(bad, "nats.url", "is no NATS URL; write nats://host:4222, and commas between several")
		}
	}
	if prefix := c.NATS.InboxPrefix; prefix != "" && (checkPattern(prefix) != nil || strings.ContainsAny(prefix, "*>")) {
		c.fault(bad, "nats.inboxPrefix", "is %q; want a subject without wildcards, such as _INBOX_outlane", prefix)
	}
	_, port, err := net.SplitHostPort(c.HTTP.Addr)
	if _, badPort := strconv.ParseUint(port, 10, 16); err != nil || badPort != nil {
		c.fault(bad, "http.addr", "is %q; want host:port or :port", c.HTTP.Addr)
	}
}

func (c *Config) validateCredentials(bad *problems) {
	n := c.NATS
	var ways []string
	for _, way := range []struct{ path, value string }{
		{"nats.user", n.User}, {"nats.token", n.Token}, {"nats.credsFile", n.CredsFile}, {"nats.nkeyFile", n.NKeyFile},
	} {
		if way.value != "" {
			ways = append(ways, way.path)
		}
	}
	if len(ways) > 1 {
		c.fault(bad, ways[1], "is set, and %s too; keep one way to log in", ways[0])
	}
	if n.Password != "" && n.User == "" {
		c.fault(bad, "nats.password", "is set without nats.user; set both")
	}
	if (n.TLS.Cert == "") != (n.TLS.Key == "") {
		set, missing := "nats.tls.cert", "nats.tls.key"
		if n.TLS.Cert == "" {
			set, missing = missing, set
		}
		c.fault(bad, set, "is set without %s; set both", missing)
	}
}

func (c *Config) validateLease(bad *problems) {
	const longestInstance = 200
	l := c.Lease
	if l.Instance == "" || len(l.Instance) > longestInstance || strings.ContainsFunc(l.Instance, func(r rune) bool { return !unicode.IsPrint(r) }) {
		c.fault(bad, "lease.instance", "is empty, has a control character or more than %d bytes; use the release's name", longestInstance)
	}
	if ns := l.Namespace; len(ns) > 63 || strings.Trim(ns, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || strings.HasPrefix(ns, "-") || strings.HasSuffix(ns, "-") {
		c.fault(bad, "lease.namespace", "is %q; a namespace has small letters, digits and dashes", ns)
	}
	if (l.PodName == "") != (l.PodUID == "") {
		set, missing := "lease.podName", "lease.podUid"
		if l.PodName == "" {
			set, missing = missing, set
		}
		c.fault(bad, set, "is set without %s; set both, from the downward API", missing)
	}
	if l.Backend == "kubernetes" {
		return
	}
	for _, path := range []string{"lease.namespace", "lease.podName", "lease.kubeconfig"} {
		if c.text(fieldByPath[path]) != "" {
			c.fault(bad, path, "is set, and lease.backend is %s; set the backend to kubernetes, or leave it out", l.Backend)
		}
	}
}

func (c *Config) validateRoutes(bad *problems) {
	type before struct{ pattern, path string }
	var earlier []before
	orders := map[string]int{} // the first route to a stream, which decides the order of its lanes
	for i, r := range c.Routes {
		path := fmt.Sprintf("routes[%d]", i)
		if first, ok := orders[r.Stream]; !ok {
			orders[r.Stream] = i
		} else if c.Routes[first].Order != r.Order {
			c.fault(bad, path+".order", "is %s, but routes[%d] to %s has %s; a stream has one order", r.Order, first, r.Stream, c.Routes[first].Order)
		}
		c.requireItem(bad, "routes", path)
		checkStreamName(c, bad, path+".stream", r.Stream)
		c.requireTexts(bad, path+".topics", r.Topics)
		for _, topic := range r.Topics {
			at := path + ".topics"
			if err := checkPattern(topic); err != nil {
				c.fault(bad, at, "has %q, which %v", topic, err)
				continue
			}
			for _, e := range earlier {
				if covers(e.pattern, topic) {
					c.fault(bad, at, "has %q, which never counts: %q in %s comes first; move it up or remove it", topic, e.pattern, e.path)
				}
			}
			if s := c.stream(r.Stream); s != nil && len(s.Subjects) > 0 && !slices.ContainsFunc(s.Subjects, func(subject string) bool { return overlaps(subject, topic) }) {
				c.fault(bad, at, "has %q, but %s stores only %s; add it to the stream's subjects", topic, r.Stream, strings.Join(s.Subjects, ", "))
			}
			earlier = append(earlier, before{topic, path})
		}
	}
}

func (c *Config) stream(name string) *Stream {
	for i := range c.Streams {
		if c.Streams[i].Name == name {
			return &c.Streams[i]
		}
	}
	return nil
}

func (c *Config) validateStreams(bad *problems) {
	type before struct{ subject, path string }
	var earlier []before
	names := map[string]string{}
	for i, s := range c.Streams {
		path := fmt.Sprintf("streams[%d]", i)
		c.requireItem(bad, "streams", path)
		checkStreamName(c, bad, path+".name", s.Name)
		c.requireTexts(bad, path+".subjects", s.Subjects)
		if first, twice := names[s.Name]; twice {
			c.fault(bad, path+".name", "is %s, as that of %s; keep one", s.Name, first)
		} else if s.Name != "" {
			names[s.Name] = path
		}
		for _, subject := range s.Subjects {
			at := path + ".subjects"
			if err := checkPattern(subject); err != nil {
				c.fault(bad, at, "has %q, which %v", subject, err)
				continue
			}
			for _, e := range earlier {
				if overlaps(e.subject, subject) {
					c.fault(bad, at, "has %q, which overlaps %q of %s; a subject can be in one stream only", subject, e.subject, e.path)
				}
			}
			earlier = append(earlier, before{subject, path})
		}
		if r := s.Replicas; r == 2 || r == 4 {
			c.fault(bad, path+".replicas", "is %d; want 1, 3 or 5", r)
		}
		if least := c.ResendWithin(); s.DuplicateWindow > 0 && s.DuplicateWindow < least {
			c.fault(bad, path+".duplicateWindow", "is %s; want at least %s, which is lease.duration, 60s and twice nats.ackTimeout together",
				formatDuration(s.DuplicateWindow), formatDuration(least))
		}
		if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
			c.fault(bad, path+".duplicateWindow", "is %s, above maxAge of %s; lower it", formatDuration(s.DuplicateWindow), formatDuration(s.MaxAge))
		}
	}
}

// requireItem reports the fields that the item of a list must have and does not.
func (c *Config) requireItem(bad *problems, list, path string) {
	for _, f := range itemTables[list] {
		if at := path + "." + f.Name; f.Required && c.origins[at].Kind == "" && !bad.has(at) && !bad.has(path) {
			bad.add(at, "%s%s has no %s; add it", path, c.Origin(path).phrase(), f.Name)
		}
	}
}

func (c *Config) requireTexts(bad *problems, path string, texts []string) {
	if c.origins[path].Kind != "" && len(texts) == 0 {
		c.fault(bad, path, "is empty; name at least one")
	}
}

func checkStreamName(c *Config, bad *problems, path, name string) {
	const longest = 255
	if c.origins[path].Kind == "" {
		return
	}
	if name == "" || len(name) > longest || strings.ContainsAny(name, " \t\r\n\x00.*>/\\") {
		c.fault(bad, path, "is %q; a stream's name has no space, dot, *, >, / or \\", name)
	}
}
