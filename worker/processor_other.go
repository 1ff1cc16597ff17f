//go:build !linux

package worker

import "time"

// holdProcessor holds nothing here.
func holdProcessor() { time.Sleep(7 * time.Millisecond) }
