// Package crash ends the process at named points, so that tests can see what a crash exactly there leaves behind.
//
// It promises to do nothing at all in an ordinary build: At is empty and inlined away. In a build with the tag crashpoints, the process kills itself (SIGKILL,
// nothing is flushed or deferred) when it reaches the point that the environment variable CRASH_AT names, for the n-th time if the name is
// followed by ":n", else for the first. Any goroutine may call At at any time.
//
// A place in the code may name functions that run before that happens, for what must have left the process by then; they run in no other case.
//
// With PAUSE_AT instead, the process stops itself there (SIGSTOP), as if its machine had been paused, and goes on when it gets SIGCONT.
package crash

// The environment variables. They are no settings of Outlane, whose prefix they therefore do not have.
const (
	CrashVariable = "CRASH_AT"
	PauseVariable = "PAUSE_AT"
)

// The points, in the order in which an event meets them.
const (
	Claiming      = "claiming"       // the lease is ours, the epoch not raised
	Claimed       = "claimed"        // the epoch is raised, no lane started
	Fetched       = "fetched"        // rows are read, nothing is sent
	Checked       = "checked"        // the epoch was found to be ours, nothing is sent
	Sending       = "sending"        // half of a batch is sent
	Acknowledged  = "acknowledged"   // the stream has the batch, nobody knows
	Marking       = "marking"        // about to mark
	Marked        = "marked"         // marked, the worker does not know
	GivingUp      = "giving_up"      // an event was refused for good, its dead letter is not written
	GaveUp        = "gave_up"        // its dead letter is written
	Parked        = "parked"         // events were parked behind a dead letter
	CursorsSaved  = "cursors_saved"  // cursors are saved
	Releasing     = "releasing"      // a partition is to be handed over, it is not drained
	Released      = "released"       // it is drained, its lease is still ours
	HorizonSaved  = "horizon_saved"  // the horizon is saved, the cursors are not
	SequenceReset = "sequence_reset" // cursors were set back, the session is not reopened
)

// Points are all of them.
var Points = []string{Claiming, Claimed, Fetched, Checked, Sending, Acknowledged, Marking, Marked, GivingUp, GaveUp, Parked, HorizonSaved, CursorsSaved,
	Releasing, Released, SequenceReset}
