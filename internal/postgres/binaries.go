package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// ErrNotInstalled is returned when no PostgreSQL server (of the wanted version) or no pgbouncer is on this machine.
var ErrNotInstalled = errors.New("not installed")

var binFolders = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin"}

var digits = regexp.MustCompile(`\d+`)

// BinDir returns the folder of the server programs (postgres, initdb, pg_basebackup) of a major version such as "15". An empty version
// means the environment variable PG, and without that the newest version found. The error wraps ErrNotInstalled.
func BinDir(version string) (string, error) {
	if version == "" {
		version = os.Getenv("PG")
	}
	best, bestMajor := "", -1
	for _, dir := range candidates() {
		major := -1
		if m := digits.FindString(dir); m != "" {
			major, _ = strconv.Atoi(m)
		}
		if version != "" && strconv.Itoa(major) != version {
			continue
		}
		if major > bestMajor || best == "" {
			best, bestMajor = dir, major
		}
	}
	if best != "" {
		return best, nil
	}
	if version != "" {
		return "", fmt.Errorf("find the programs of PostgreSQL %s: %w", version, ErrNotInstalled)
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", fmt.Errorf("find the programs of PostgreSQL: %w", ErrNotInstalled)
}

func candidates() []string {
	var dirs []string
	for _, pattern := range binFolders {
		found, _ := filepath.Glob(pattern) // the patterns are constants, so never malformed
		for _, dir := range found {
			if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}
