package image

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// UID is the user, and the group, that the program runs as.
const UID = 65532

// baseFiles are the files beside the program. They depend on the Go release and on the module that has the authorities' certificates.
func baseFiles(ctx context.Context) ([]file, error) {
	zones, err := timeZones(ctx)
	if err != nil {
		return nil, fmt.Errorf("collect time zones: %w", err)
	}
	return append(zones,
		file{"etc/passwd", 0o644, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\noutlane:x:%d:%d:outlane:/:/sbin/nologin\n", UID, UID)},
		file{"etc/group", 0o644, fmt.Appendf(nil, "root:x:0:\noutlane:x:%d:\n", UID)},
		file{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		file{"tmp/", 0o1777, nil},
	), nil
}

// authorities are the certificates that browsers trust without conditions.
func authorities() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
		}
	}
	return text.Bytes()
}

func timeZones(ctx context.Context) ([]file, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find the Go toolchain: %w", err)
	}
	data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	var files []file
	for _, entry := range archive.File {
		if strings.HasSuffix(entry.Name, "/") {
			continue
		}
		r, err := entry.Open()
		if err != nil {
			return nil, err
		}
		zone, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			return nil, err
		}
		files = append(files, file{"usr/share/zoneinfo/" + entry.Name, 0o644, zone})
	}
	return files, nil
}
