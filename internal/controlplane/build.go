package controlplane

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// module is the folder of the control plane's module, from the root of the main one.
const module = "e2e/cluster"

// Build returns the path of the control plane's binary and builds it if it is not in the cache. Processes that want it at once wait for
// the first of them. It must be called from within the main module's tree. What takes long is said to progress.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	source := filepath.Join(root, module)
	folder, err := cacheFolder(source)
	if err != nil {
		return "", err
	}
	program := filepath.Join(folder, "cluster")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	unlock, err := lock(folder + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	_, _ = fmt.Fprintf(progress, "building Kubernetes into %s; the first time this takes a quarter of an hour\n", folder)
	if err := build(ctx, source, program); err != nil {
		return "", err
	}
	return program, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if file == "" || file == os.DevNull {
		return "", errors.New("find the module's folder: this is not called from within Outlane's source")
	}
	return filepath.Dir(file), nil
}

// cacheFolder is named by Kubernetes' version and by everything that the binary is made from.
func cacheFolder(source string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	version, err := kubernetesVersion(source)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("read the control plane's source: %w", err)
		}
		sum.Write(text)
	}
	folder := filepath.Join(cache, "outlane", fmt.Sprintf("k8s-%s-%x", version, sum.Sum(nil)[:4]))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	return folder, nil
}

var versionLine = regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)$`)

func kubernetesVersion(source string) (string, error) {
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the control plane's source: %w", err)
	}
	found := versionLine.FindSubmatch(text)
	if found == nil {
		return "", errors.New("find the version of Kubernetes: go.mod has none")
	}
	return string(found[1]), nil
}

// lock holds a file against other processes.
func lock(name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cache: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the cache: %w", err), file.Close())
	}
	return func() { _ = file.Close() }, nil // which unlocks it
}

func build(ctx context.Context, source, program string) error {
	version, err := kubernetesVersion(source)
	if err != nil {
		return err
	}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	link := []string{"-s", "-w"}
	for _, of := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} { // what servers and kubectl say they are
		link = append(link, "-X", of+".gitVersion="+version, "-X", of+".gitMajor="+major, "-X", of+".gitMinor="+minor,
			"-X", of+".gitTreeState=clean", "-X", of+".gitCommit=0000000000000000000000000000000000000000", "-X", of+".buildDate=2026-01-01T00:00:00Z")
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", strings.Join(link, " "), "-o", program+".new", ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Kubernetes: %w: %s", err, strings.TrimSpace(string(out)))
	}
	if err := os.Rename(program+".new", program); err != nil {
		return fmt.Errorf("keep the control plane's binary: %w", err)
	}
	return nil
}
