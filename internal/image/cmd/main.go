// Command cmd makes Outlane's container image: see package image.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outlane/outlane/internal/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	opts := image.Options{Package: "./cmd/outlane"}
	out := flag.String("o", "bin/outlane-image.tar", "file to write; the modules go beside it")
	platforms := flag.String("platforms", strings.Join(image.Platforms, ","), "architectures")
	flag.StringVar(&opts.Name, "name", "ghcr.io/outlane/outlane", "name of the image, without a tag")
	flag.StringVar(&opts.Version, "version", "dev", "version, and tag")
	flag.Parse()
	opts.Platforms = strings.Split(*platforms, ",")
	opts.Revision = git(ctx, "rev-parse", "HEAD")
	var err error
	if opts.Created, err = created(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*out), 0o755); err != nil {
		return fmt.Errorf("make the folder: %w", err)
	}
	f, err := os.Create(*out)
	if err != nil {
		return fmt.Errorf("make the file: %w", err)
	}
	built, err := image.Build(ctx, opts, f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(*out)
		return err
	}
	for arch, sbom := range built.SBOMs {
		if err := os.WriteFile(strings.TrimSuffix(*out, ".tar")+"-"+arch+".spdx.json", sbom, 0o644); err != nil {
			return fmt.Errorf("write the modules: %w", err)
		}
	}
	fmt.Printf("%s:%s\n%s@%s\n%s\n", opts.Name, opts.Version, opts.Name, built.Digest, *out)
	return nil
}

// created is the commit's time, or what SOURCE_DATE_EPOCH says.
func created(ctx context.Context) (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		text = git(ctx, "log", "-1", "--format=%ct")
	}
	if text == "" {
		text = "0"
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0), nil
}

// git is empty where there is no repository.
func git(ctx context.Context, args ...string) string {
	text, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
