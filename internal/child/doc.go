// Package child says how to start a process that must not outlive this one: it gets a process group of its own, so that Ctrl-C reaches only
// this process, which then ends it as it wants; and on Linux it is killed when this process dies, in whatever way, frozen or not.
package child
