package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/natsserver"
)

// natsOrder is a server to run.
type natsOrder struct {
	natsserver.Options
	// Advertise is the address at which other members of the cluster reach this one; empty: its own.
	Advertise string
}

func (o natsOrder) options() natsserver.Options {
	opts := o.Options
	if o.Advertise != "" {
		opts.Configure = func(s *server.Options) { s.Cluster.Advertise = o.Advertise }
	}
	return opts
}

// cluster is three NATS servers, each reached by the others through a line that delays.
type cluster struct {
	servers []*process
	urls    map[string]string // by the server's name
	lines   []*line
	conn    *nats.Conn
	js      jetstream.JetStream
}

// cluster starts servers with a round trip time between them.
func (l *lab) cluster(ctx context.Context, roundTrip time.Duration) (_ *cluster, err error) {
	c := &cluster{urls: map[string]string{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	const members = 3
	list, err := natsserver.ClusterOptions("C", members)
	if err != nil {
		return nil, err
	}
	var routes []string
	for _, m := range list {
		line, err := newLine(fmt.Sprintf("127.0.0.1:%d", m.Cluster.Port), roundTrip/2)
		if err != nil {
			return nil, err
		}
		c.lines = append(c.lines, line)
		routes = append(routes, "nats://"+line.address())
	}
	dir := fmt.Sprintf("cluster-%d", time.Now().UnixNano())
	for i, m := range list {
		m.StoreDir = filepath.Join(l.dir, dir, m.Name)
		m.Cluster.Routes = routes
		p, url, err := l.startChild("nats", order{NATS: &natsOrder{Options: m, Advertise: c.lines[i].address()}})
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, p)
		c.urls[m.Name] = url
	}
	var all []string
	for _, url := range c.urls {
		all = append(all, url)
	}
	if c.conn, c.js, err = dial(strings.Join(all, ",")); err != nil {
		return nil, err
	}
	return c, wait(ctx, "a cluster of three", time.Minute, func() (bool, error) {
		asked, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		name := "PROBE"
		_, err := c.js.CreateStream(asked, jetstream.StreamConfig{Name: name, Subjects: []string{"probe"}, Replicas: members})
		if err != nil {
			return false, nil // no quorum yet
		}
		return true, c.js.DeleteStream(ctx, name)
	})
}

func (c *cluster) close() error {
	if c.conn != nil {
		c.conn.Close()
	}
	var err error
	for _, p := range c.servers {
		err = errors.Join(err, p.end())
	}
	for _, l := range c.lines {
		l.close()
	}
	return err
}

// leader waits for a stream's leader and gives its address.
func (c *cluster) leader(ctx context.Context, stream string) (url string, err error) {
	err = wait(ctx, "a leader of the stream", time.Minute, func() (bool, error) {
		asked, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		s, err := c.js.Stream(asked, stream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false, nil // elections are not over
		}
		url = c.urls[s.CachedInfo().Cluster.Leader]
		return url != "", nil
	})
	return url, err
}

// replicated is section g: a stream with three replicas.
func replicated(ctx context.Context, l *lab) ([]Row, error) {
	events := map[bool]int{false: pick(l, 2000, 50_000, 200_000), true: pick(l, 500, 5000, 20_000)}
	var rows []Row
	for _, roundTrip := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
		c, err := l.cluster(ctx, roundTrip)
		if err != nil {
			return rows, err
		}
		name := fmt.Sprintf("%s round trip", roundTrip)
		var sides []side
		for _, sync := range []bool{false, true} {
			d := pool(1, backlog{events: events[sync], keys: 5000, payload: 200, partitions: 64, streams: 1})
			d.name = name + map[bool]string{false: ": fast", true: ": sync"}[sync]
			d.opts.noBatches, d.opts.replicas, d.opts.cluster = sync, len(c.servers), c
			sides = append(sides, d)
		}
		r, err := l.sides(ctx, l.repeats(), sides...)
		if err := errors.Join(err, c.close()); err != nil {
			return rows, err
		}
		r[0] = r[0].against(r[1].Name, r[1].Value)
		if roundTrip == 5*time.Millisecond {
			r[0] = r[0].target("≥ 5")
		}
		rows = append(rows, r[0])
	}
	return rows, nil
}
