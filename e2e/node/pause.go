package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const pauseImage = "docker.io/outlane/pause:e2e"

// BuildPause makes the image that keeps pods' namespaces, as a file. It must be called from within the module of the suite.
func BuildPause(ctx context.Context, file string) error {
	program := file + ".program"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/outlane/outlane/e2e/node/pause")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program pause: %w: %s", err, strings.TrimSpace(string(out)))
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the program pause: %w", err)
	}
	layer, err := archive(0o755, entry{"pause", text})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": []string{"/pause"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return fmt.Errorf("describe the image of pause: %w", err)
	}
	manifest, err := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{pauseImage}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fmt.Errorf("describe the image of pause: %w", err)
	}
	image, err := archive(0o644, entry{"layer.tar", layer}, entry{"config.json", config}, entry{"manifest.json", manifest})
	if err != nil {
		return err
	}
	if err := errors.Join(os.WriteFile(file, image, 0o644), os.Remove(program)); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}

type entry struct {
	name string
	data []byte
}

func archive(mode int64, entries ...entry) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: mode, Size: int64(len(e.data))})
		if err == nil {
			_, err = w.Write(e.data)
		}
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", e.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack an image: %w", err)
	}
	return out.Bytes(), nil
}
