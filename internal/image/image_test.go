package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/image"
)

func options(version string) image.Options {
	return image.Options{
		Package: filepath.Join("testdata", "hello"), Version: version, Revision: "0123abcd", Created: time.Unix(1_700_000_000, 0),
		Name: "registry.example/outlane", Platforms: image.Platforms,
	}
}

func build(t *testing.T, opts image.Options) (image.Built, map[string][]byte, []byte) {
	t.Helper()
	var out bytes.Buffer
	built, err := image.Build(context.Background(), opts, &out)
	require.NoError(t, err)
	return built, untar(t, out.Bytes()), out.Bytes()
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		require.Equal(t, int64(1_700_000_000), h.ModTime.Unix(), h.Name)
		require.Zero(t, h.Uid+h.Gid, h.Name)
		text, err := io.ReadAll(r)
		require.NoError(t, err)
		files[h.Name] = text
	}
}

// descriptor is what the test reads of one.
type descriptor struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ Architecture, OS string }
	Annotations       map[string]string
}

type document struct {
	Manifests, Layers []descriptor
	Config            json.RawMessage
	RootFS            struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// blob reads the content of d, and checks that it is what d says.
func blob(t *testing.T, archive map[string][]byte, d descriptor) []byte {
	t.Helper()
	data, ok := archive["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	require.True(t, ok, d.Digest)
	require.Len(t, data, d.Size)
	require.Equal(t, d.Digest, sum(data))
	return data
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(s[:])
}

func parse(t *testing.T, text []byte, v any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(text, v))
}

func TestTwoBuildsHaveOneDigest(t *testing.T) {
	t.Parallel()
	first, _, firstFile := build(t, options("v1"))
	second, _, secondFile := build(t, options("v1"))
	require.Equal(t, first.Digest, second.Digest)
	require.Equal(t, sum(firstFile), sum(secondFile))
	other, _, _ := build(t, options("v2"))
	require.NotEqual(t, first.Digest, other.Digest)
}

func TestImageHasWhatAProgramNeeds(t *testing.T) {
	t.Parallel()
	built, archive, _ := build(t, options("v1"))
	require.JSONEq(t, `{"imageLayoutVersion":"1.0.0"}`, string(archive["oci-layout"]))
	var entry, whole document
	parse(t, archive["index.json"], &entry)
	require.Len(t, entry.Manifests, 1)
	require.Equal(t, built.Digest, entry.Manifests[0].Digest)
	require.Equal(t, "registry.example/outlane:v1", entry.Manifests[0].Annotations["io.containerd.image.name"])
	parse(t, blob(t, archive, entry.Manifests[0]), &whole)
	require.Len(t, whole.Manifests, 2)
	for i, arch := range image.Platforms {
		require.Equal(t, arch, whole.Manifests[i].Platform.Architecture)
		checkPlatform(t, archive, whole.Manifests[i], built.SBOMs[arch])
	}
}

func checkPlatform(t *testing.T, archive map[string][]byte, d descriptor, sbom []byte) {
	t.Helper()
	var m, config document
	var at descriptor
	parse(t, blob(t, archive, d), &m)
	parse(t, m.Config, &at)
	text := blob(t, archive, at)
	parse(t, text, &config)
	var run struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	}
	parse(t, config.Config, &run)
	require.Equal(t, fmt.Sprintf("%d:%d", image.UID, image.UID), run.User)
	require.Equal(t, []string{"/usr/bin/outlane"}, run.Entrypoint)
	require.Equal(t, "v1", run.Labels["org.opencontainers.image.version"])
	require.Equal(t, "0123abcd", run.Labels["org.opencontainers.image.revision"])

	files := map[string][]byte{}
	require.Len(t, m.Layers, 2)
	for i, l := range m.Layers {
		z, err := gzip.NewReader(bytes.NewReader(blob(t, archive, l)))
		require.NoError(t, err)
		plain, err := io.ReadAll(z)
		require.NoError(t, err)
		require.Equal(t, config.RootFS.DiffIDs[i], sum(plain))
		for name, data := range untar(t, plain) {
			files[name] = data
		}
	}
	require.Contains(t, string(files["etc/passwd"]), "outlane:x:65532:")
	require.Contains(t, files, "tmp/")
	require.True(t, x509.NewCertPool().AppendCertsFromPEM(files["etc/ssl/certs/ca-certificates.crt"]))
	require.Greater(t, bytes.Count(files["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")), 100)
	_, err := time.LoadLocationFromTZData("Europe/Berlin", files["usr/share/zoneinfo/Europe/Berlin"])
	require.NoError(t, err)
	require.Equal(t, "\x7fELF", string(files["usr/bin/outlane"][:4]))
	require.Equal(t, sbom, files["usr/share/sbom/outlane.spdx.json"])
	for name := range files {
		require.NotContains(t, name, "bin/sh")
	}
}

func TestSBOMListsTheModules(t *testing.T) {
	t.Parallel()
	text, err := image.SBOM(&debug.BuildInfo{GoVersion: "go1.99", Main: debug.Module{Path: "example.org/main"}, Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.2.3"},
		{Path: "example.org/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.org/fork", Version: "v9.9.9+incompatible"}},
	}}, "v1", "sha256:00", time.Unix(0, 0))
	require.NoError(t, err)
	var doc struct {
		SPDXID        string
		Packages      []struct{ SPDXID, Name, VersionInfo string }
		Relationships []struct{ SpdxElementID, RelationshipType, RelatedSpdxElement string }
	}
	parse(t, text, &doc)
	var names []string
	ids := map[string]bool{doc.SPDXID: true}
	for _, p := range doc.Packages {
		names = append(names, p.Name+"@"+p.VersionInfo)
		require.False(t, ids[p.SPDXID], "each has an id of its own")
		ids[p.SPDXID] = true
	}
	require.Equal(t, []string{"example.org/main@v1", "std@1.99", "example.org/a@v1.2.3", "example.org/fork@v9.9.9+incompatible"}, names)
	require.Len(t, doc.Relationships, 4)
	for _, r := range doc.Relationships {
		require.True(t, ids[r.SpdxElementID] && ids[r.RelatedSpdxElement])
	}
}

func TestErrorsOfTheCompilerAreShown(t *testing.T) {
	t.Parallel()
	opts := options("v1")
	opts.Package = t.TempDir()
	require.NoError(t, exec.Command("cp", filepath.Join("testdata", "hello", "main.go"), opts.Package).Run())
	_, err := image.Build(context.Background(), opts, io.Discard)
	require.ErrorContains(t, err, "go.mod", "a folder outside every module")
}
