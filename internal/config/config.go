package config

import "time"

// Config is everything that can be configured. The tags of its fields are the table that Fields returns:
//
//	name     the field's name in the file
//	help     what it means
//	default  its default, in the form the file has
//	min, max the range of a number, a duration or a size
//	oneof    the allowed texts, separated by |
//	required the item of a list must have it
//	secret   the value is masked; with a sibling NAMEFile, it can come from that file
//	flag     a short flag besides the one derived from the path; "common": the derived one is short enough
type Config struct {
	PartitionKeyField string `name:"partitionKeyField" default:"team_id" help:"Top-level field of the payload that is the partition key of events inserted without one. Stored in the database by the first migrate up."`
	Partitions        int    `name:"partitions" default:"0" min:"0" max:"4096" help:"Number of partitions. Stored in the database by the first migrate up (64 if 0); later a number that differs from the stored one is refused."`

	Worker   Worker   `name:"worker"`
	Lease    Lease    `name:"lease"`
	Database Database `name:"database"`
	NATS     NATS     `name:"nats"`
	HTTP     HTTP     `name:"http"`
	Log      Log      `name:"log"`

	Routes  []Route  `name:"routes" help:"What holds for events by their topic; the first route that matches an event decides. An event that no route matches has the defaults, and its stream column or the stream that has its topic decides where it goes."`
	Streams []Stream `name:"streams" help:"Streams that outlane streams plan|apply looks after. A setting that is left out is the server's default when the stream is created, and makes no difference when it exists."`

	file    string
	origins map[string]Origin
}

// Worker is how a worker moves events.
type Worker struct {
	ID           string        `name:"id" default:"" flag:"common" help:"The worker's name, for people: in logs, status and the database. Each start adds a random ending to it. Empty: the host's name."`
	BatchEvents  int           `name:"batchEvents" default:"250" min:"1" max:"1000" help:"Most events fetched, published and marked together."`
	BatchBytes   ByteSize      `name:"batchBytes" default:"4MiB" min:"1KiB" max:"1GiB" help:"Most bytes of payload fetched, published and marked together. A single larger event goes alone."`
	PollInterval time.Duration `name:"pollInterval" default:"3ms" min:"1ms" max:"1m" help:"Pause between two looks at the table while events flow."`
	Memory       ByteSize      `name:"memory" default:"64MiB" min:"1MiB" max:"1TiB" help:"Most bytes of payload held at a time."`
	PollOnly     bool          `name:"pollOnly" default:"false" help:"Never ask inserts to notify a sleeping pool. For producers that prepare transactions (two-phase commit), which a notification forbids. An idle pool then polls more often."`
	Publishers   int           `name:"publishers" default:"8" min:"1" max:"1000" help:"Most publishes under way at a time for one stream."`
	Fetchers     int           `name:"fetchers" default:"4" min:"1" max:"100" help:"Most fetches under way at a time."`
	MaxAttempts  int           `name:"maxAttempts" default:"5" min:"1" max:"1000" help:"After how many refusals an event becomes a dead letter. Outages do not count; an event that can never be stored becomes one at once."`
	DrainTimeout time.Duration `name:"drainTimeout" default:"25s" min:"0s" max:"1h" help:"How long a worker that was told to stop may settle what is under way and hand over. Shorter than the grace period of whatever stops it."`
}

// Lease is how workers agree on who owns which partition.
type Lease struct {
	Backend    string        `name:"backend" default:"postgres" oneof:"postgres|kubernetes" help:"Where members and leases are kept: in the database, or as Leases of a Kubernetes cluster."`
	Duration   time.Duration `name:"duration" default:"10s" min:"1s" max:"10m" help:"How long a worker that is silent keeps its partitions."`
	Weights    bool          `name:"weights" default:"false" help:"Share partitions out by how busy they are, so that a hot one is not held together with many others. Counts once all workers have it on."`
	Instance   string        `name:"instance" default:"outlane" flag:"instance" help:"The pool's name among those of a Kubernetes namespace, such as that of a Helm release. One pool, one outbox."`
	Namespace  string        `name:"namespace" default:"" help:"Kubernetes namespace of the Leases. Empty: the pod's own, or that of the kubeconfig."`
	PodName    string        `name:"podName" default:"" help:"The pod that the worker runs in, from the downward API (metadata.name). Its Lease then goes with it."`
	PodUID     string        `name:"podUid" default:"" help:"The pod's UID, from the downward API (metadata.uid)."`
	Kubeconfig string        `name:"kubeconfig" default:"" help:"File that says how to reach the Kubernetes API server. Empty: KUBECONFIG, or the pod's service account."`
}

// Database is how to reach Postgres.
type Database struct {
	URL              string        `name:"url" default:"" secret:"url" flag:"common" help:"Where Postgres is: postgres://user:password@host:5432/database, several hosts with commas, or libpq's keyword form."`
	URLFile          string        `name:"urlFile" default:"" help:"File that holds the URL."`
	Schema           string        `name:"schema" default:"public" flag:"schema" help:"Schema of Outlane's tables."`
	Pooler           string        `name:"pooler" default:"auto" oneof:"auto|none|transaction" help:"Whether a pooler in transaction mode, such as pgbouncer, stands between. auto finds out."`
	MaxConnections   int           `name:"maxConnections" default:"8" min:"2" max:"1000" help:"Most connections that statements use at a time. A worker has up to four more: two for its leases, two for LISTEN."`
	StatementTimeout time.Duration `name:"statementTimeout" default:"30s" min:"1s" max:"1h" help:"How long a statement may take."`
}

// NATS is how to reach NATS.
type NATS struct {
	URL          string        `name:"url" default:"" secret:"url" flag:"common" help:"Where NATS is: nats://host:4222, or tls://; several servers with commas."`
	URLFile      string        `name:"urlFile" default:"" help:"File that holds the URL."`
	User         string        `name:"user" default:"" help:"User name."`
	Password     string        `name:"password" default:"" secret:"value" help:"The user's password."`
	PasswordFile string        `name:"passwordFile" default:"" help:"File that holds the password. Read again at each connection."`
	Token        string        `name:"token" default:"" secret:"value" help:"Token, instead of a user."`
	TokenFile    string        `name:"tokenFile" default:"" help:"File that holds the token. Read again at each connection."`
	CredsFile    string        `name:"credsFile" default:"" help:"Credentials file (JWT and nkey seed), instead of a user. Read again at each connection."`
	NKeyFile     string        `name:"nkeyFile" default:"" help:"File with an nkey seed, instead of a user. Read again at each connection."`
	TLS          TLS           `name:"tls"`
	InboxPrefix  string        `name:"inboxPrefix" default:"" help:"Subject under which answers arrive, for accounts that restrict it. Empty: _INBOX."`
	AckTimeout   time.Duration `name:"ackTimeout" default:"5s" min:"100ms" max:"5m" help:"How long a stream may take to acknowledge before the events are sent again. The duplicate window of streams must be at least lease.duration, 60s and twice this together."`
}

// TLS are the files of a TLS connection to NATS.
type TLS struct {
	CA   string `name:"ca" default:"" help:"File with the certificates of the authorities to trust, instead of the system's."`
	Cert string `name:"cert" default:"" help:"File with the client's certificate."`
	Key  string `name:"key" default:"" help:"File with the client's key."`
}

// HTTP is where probes and metrics are served.
type HTTP struct {
	Addr string `name:"addr" default:":8080" flag:"common" help:"Address of /livez, /readyz and /metrics: host:port, or :port for every interface. Port 0 takes a free one."`
}

// Log is what is logged, to standard error.
type Log struct {
	Level  string `name:"level" default:"info" oneof:"debug|info|warn|error" flag:"common" help:"Least level that is logged."`
	Format string `name:"format" default:"json" oneof:"json|text" flag:"common" help:"One JSON object a line, or key=value text."`
}

// Route is what holds for events of some topics.
type Route struct {
	Topics       []string `name:"topics" required:"true" help:"Topic patterns as in NATS: * is one token, a last > is one or more."`
	Stream       string   `name:"stream" required:"true" help:"Stream of events that were inserted without one."`
	OnDeadLetter string   `name:"onDeadLetter" default:"skip" oneof:"skip|block" help:"After a dead letter, whether later events of its key go on (skip) or are parked until a person decides (block)."`
	MaxAttempts  int      `name:"maxAttempts" default:"0" min:"0" max:"1000" help:"As worker.maxAttempts, which holds if 0."`
	Order        string   `name:"order" default:"commit" oneof:"commit|sequence" help:"commit: in seq order as events become visible. sequence: in seq order without exception, waiting for the oldest open write transaction."`
}

// Stream is a JetStream stream as it should be.
type Stream struct {
	Name              string        `name:"name" required:"true" help:"The stream's name."`
	Subjects          []string      `name:"subjects" required:"true" help:"Subjects that it stores."`
	Replicas          int           `name:"replicas" default:"0" min:"0" max:"5" help:"Copies: 1, 3 or 5."`
	Storage           string        `name:"storage" default:"" oneof:"file|memory" help:"Where messages are kept."`
	DuplicateWindow   time.Duration `name:"duplicateWindow" default:"0s" min:"0s" max:"8760h" help:"How long the stream remembers event ids, so that a resend is stored once."`
	MaxAge            time.Duration `name:"maxAge" default:"0s" min:"0s" max:"876000h" help:"Age at which messages are removed."`
	MaxBytes          ByteSize      `name:"maxBytes" default:"0B" min:"0B" max:"8191PiB" help:"Size at which discard decides."`
	Retention         string        `name:"retention" default:"" oneof:"limits|interest|workqueue" help:"What lets a message be removed."`
	Discard           string        `name:"discard" default:"" oneof:"new|old" help:"When the stream is full: refuse new messages, which then wait in the outbox, or remove old ones."`
	AllowBatchPublish *bool         `name:"allowBatchPublish" help:"Whether events may be stored in fast batches (nats-server 2.14 or later). Left out: where the server can."`
}

// longestBackoff is the longest pause of a lane between two tries.
const longestBackoff = time.Minute

// ResendWithin is how long after its first try an event may be sent again when nothing but one worker, or its connection, has failed: its
// successor waits for the lease to run out, or a lane for its backoff, and both for answers. Streams must remember ids for that long.
func (c *Config) ResendWithin() time.Duration {
	return c.Lease.Duration + longestBackoff + 2*c.NATS.AckTimeout
}
