package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const cgroups = "/sys/fs/cgroup"

// hierarchies are the folders in which a cgroup of a name is: one of version 2, or one a controller of version 1.
func hierarchies() []string {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}
	}
	found, err := filepath.Glob(cgroups + "/*/cgroup.procs")
	if err != nil {
		return nil
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// makeCgroups makes the cgroup that the kubelet keeps all pods under.
func makeCgroups(name string) error {
	for _, parent := range hierarchies() {
		dir := filepath.Join(parent, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make a cgroup: %w", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1 starts them empty, and then takes no process
			text, err := os.ReadFile(filepath.Join(parent, file))
			if errors.Is(err, os.ErrNotExist) || strings.TrimSpace(string(text)) == "" {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), text, 0o644)
			}
			if err != nil {
				return fmt.Errorf("set up a cgroup: %w", err)
			}
		}
	}
	return nil
}

func podProcesses(name string) (pids []int) {
	for _, parent := range hierarchies() {
		pids = append(pids, processesUnder(filepath.Join(parent, name))...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

func processesUnder(dir string) (pids []int) {
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "cgroup.procs" {
			return nil // it is gone meanwhile, or is something else
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
		return nil
	})
	return pids
}

func removeCgroups(name string) error {
	var dirs []string
	for _, parent := range hierarchies() {
		_ = filepath.WalkDir(filepath.Join(parent, name), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	var errs []error
	for _, dir := range slices.Backward(dirs) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
