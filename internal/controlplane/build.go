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

const (
	self       = "github.com/outlane/outlane"
	kubernetes = "k8s.io/kubernetes"
	helm       = "helm.sh/helm/v3"
	keda       = "github.com/kedacore/keda/v2"
)

// module is a module of this repository that programs are built from.
type module struct {
	folder string // from the root of the main module
	name   string // of what is built, in the cache
	of     string // path of the module whose version it has
	long   string // how long the first build takes, for people
}

var (
	clusterModule = module{folder: "e2e/cluster", name: "k8s", of: kubernetes, long: "Kubernetes; the first time this takes a quarter of an hour"}
	kedaModule    = module{folder: "e2e/keda", name: "keda", of: keda, long: "KEDA; the first time this takes a quarter of an hour"}
)

// Build returns the path of the program that is all of Kubernetes, and builds it if it is not in the cache. Processes that want it at once
// wait for the first of them. This and the other builds must be called from within the tree of the main module, or of one that requires it by
// a replace line. What takes long is said to progress.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	b, err := clusterModule.open(ctx, progress)
	if err != nil {
		return "", err
	}
	return b.program(ctx, "cluster", ".", kubernetesFlags(b.version))
}

// BuildHelm is Build for the program helm.
func BuildHelm(ctx context.Context, progress io.Writer) (string, error) {
	b, err := clusterModule.open(ctx, progress)
	if err != nil {
		return "", err
	}
	version, err := b.versionOf(helm)
	if err != nil {
		return "", err
	}
	major, minor := majorMinor(b.version)
	link := append(kubernetesFlags(b.version), "-X", helm+"/internal/version.version="+version)
	for _, of := range []string{"chartutil", "lint/rules"} { // the Kubernetes that charts are rendered for unless a server says another
		link = append(link, "-X", helm+"/pkg/"+of+".k8sVersionMajor="+major, "-X", helm+"/pkg/"+of+".k8sVersionMinor="+minor)
	}
	return b.program(ctx, "helm", helm+"/cmd/helm", link)
}

// KEDA is where KEDA's programs are, and the folder with its CustomResourceDefinitions.
type KEDA struct {
	Operator, Adapter, Definitions string
}

// BuildKEDA is Build for KEDA.
func BuildKEDA(ctx context.Context, progress io.Writer) (k KEDA, err error) {
	b, err := kedaModule.open(ctx, progress)
	if err != nil {
		return k, err
	}
	link := []string{"-X", keda + "/version.Version=" + strings.TrimPrefix(b.version, "v"), "-X", keda + "/version.GitCommit=none"}
	if k.Operator, err = b.program(ctx, "operator", keda+"/cmd/operator", link); err != nil {
		return k, err
	}
	if k.Adapter, err = b.program(ctx, "adapter", keda+"/cmd/adapter", link); err != nil {
		return k, err
	}
	k.Definitions, err = b.copyOf(ctx, keda, "config/crd/bases")
	return k, err
}

// building is a module with its place in the cache.
type building struct {
	module
	source, cache string
	version       string
	progress      io.Writer
}

func (m module) open(ctx context.Context, progress io.Writer) (*building, error) {
	root, err := folderOf(ctx, "", self)
	if err != nil {
		return nil, err
	}
	b := &building{module: m, source: filepath.Join(root, m.folder), progress: progress}
	if b.version, err = b.versionOf(m.of); err != nil {
		return nil, err
	}
	return b, b.makeCache()
}

// folderOf is where the source of a module is, as seen from a folder.
func folderOf(ctx context.Context, from, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir, cmd.Env = from, append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the source of %s: %w", path, err)
	}
	folder := strings.TrimSpace(string(out))
	if folder == "" {
		return "", fmt.Errorf("find the source of %s: it has none here", path)
	}
	return folder, nil
}

// makeCache makes the folder of the cache, which is named by the version and by everything that the programs are made from.
func (b *building) makeCache() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find the cache folder: %w", err)
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		text, err := os.ReadFile(filepath.Join(b.source, name))
		if errors.Is(err, os.ErrNotExist) && name == "main.go" {
			continue // a module of tools alone
		}
		if err != nil {
			return fmt.Errorf("read the source of %s: %w", b.name, err)
		}
		sum.Write(text)
	}
	b.cache = filepath.Join(cache, "outlane", fmt.Sprintf("%s-%s-%x", b.name, b.version, sum.Sum(nil)[:4]))
	if err := os.MkdirAll(b.cache, 0o755); err != nil {
		return fmt.Errorf("make the cache folder: %w", err)
	}
	return nil
}

// versionOf reads which version of a module go.mod asks for.
func (b *building) versionOf(path string) (string, error) {
	text, err := os.ReadFile(filepath.Join(b.source, "go.mod"))
	if err != nil {
		return "", fmt.Errorf("read the source of %s: %w", b.name, err)
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(path) + ` (v\S+)`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("find the version of %s: go.mod has none", path)
	}
	return string(found[1]), nil
}

func majorMinor(version string) (major, minor string) {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(rest, ".")
	return major, minor
}

// kubernetesFlags are for the linker: what servers and kubectl say they are.
func kubernetesFlags(version string) []string {
	major, minor := majorMinor(version)
	var link []string
	for _, of := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		link = append(link, "-X", of+".gitVersion="+version, "-X", of+".gitMajor="+major, "-X", of+".gitMinor="+minor,
			"-X", of+".gitTreeState=clean", "-X", of+".gitCommit=0000000000000000000000000000000000000000", "-X", of+".buildDate=2026-01-01T00:00:00Z")
	}
	return link
}

// program returns the path of a program in the cache, which it builds if it is not there.
func (b *building) program(ctx context.Context, name, pkg string, link []string) (string, error) {
	path := filepath.Join(b.cache, name)
	return path, b.once(path, func() error {
		_, _ = fmt.Fprintf(b.progress, "building %s (%s) into %s\n", name, b.long, b.cache)
		cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags", strings.Join(append([]string{"-s", "-w"}, link...), " "),
			"-o", path+".new", pkg)
		cmd.Dir = b.source
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
		return os.Rename(path+".new", path)
	})
}

// copyOf returns the path of a copy of a module's folder in the cache, so that the module itself is not needed any more.
func (b *building) copyOf(ctx context.Context, path, folder string) (string, error) {
	to := filepath.Join(b.cache, filepath.Base(folder))
	return to, b.once(to, func() error {
		from, err := folderOf(ctx, b.source, path)
		if err != nil {
			return err
		}
		if err := os.RemoveAll(to + ".new"); err != nil {
			return err
		}
		if err := os.CopyFS(to+".new", os.DirFS(filepath.Join(from, filepath.FromSlash(folder)))); err != nil {
			return err
		}
		return os.Rename(to+".new", to)
	})
}

// once calls do unless path exists, in one process at a time.
func (b *building) once(path string, do func() error) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	unlock, err := lock(b.cache + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := do(); err != nil {
		return fmt.Errorf("fill the cache: %w", err)
	}
	return nil
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
