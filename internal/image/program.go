package image

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a static binary for one architecture.
type program struct {
	data []byte
	sbom []byte
}

// compile builds the package for linux on an architecture. Nothing of this machine goes in: no paths, no state of the repository.
func compile(ctx context.Context, opts Options, arch string) (program, error) {
	dir, err := os.MkdirTemp("", "outlane-image-")
	if err != nil {
		return program{}, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "outlane")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.version="+opts.Version, "-o", out, ".")
	cmd.Dir = opts.Package
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return program{}, fmt.Errorf("compile for %s: %w: %s", arch, err, strings.TrimSpace(string(text)))
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return program{}, fmt.Errorf("read the program: %w", err)
	}
	info, err := buildinfo.ReadFile(out)
	if err != nil {
		return program{}, fmt.Errorf("read the program's modules: %w", err)
	}
	sbom, err := SBOM(info, opts.Version, digest(data), opts.Created)
	return program{data, sbom}, err
}
