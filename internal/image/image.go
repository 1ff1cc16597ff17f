package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Platforms are the architectures that a release is built for, all of linux.
var Platforms = []string{"amd64", "arm64"}

// Options say what goes into the image.
type Options struct {
	Package   string    // folder of the main package
	Version   string    // what `outlane version` says, and the tag
	Revision  string    // commit, for the labels; may be empty
	Created   time.Time // the time of every file, and of the image
	Name      string    // such as ghcr.io/outlane/outlane, without a tag
	Platforms []string  // architectures
}

// Built is what came out.
type Built struct {
	Digest string            // of the image's index: sha256:…
	SBOMs  map[string][]byte // by architecture
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type imageConfig struct {
	Created      string        `json:"created"`
	Author       string        `json:"author"`
	Architecture string        `json:"architecture"`
	Variant      string        `json:"variant,omitempty"`
	OS           string        `json:"os"`
	Config       runConfig     `json:"config"`
	RootFS       rootFS        `json:"rootfs"`
	History      []historyItem `json:"history"`
}

type runConfig struct {
	User         string              `json:"User"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts"`
	Env          []string            `json:"Env"`
	Entrypoint   []string            `json:"Entrypoint"`
	Cmd          []string            `json:"Cmd"`
	WorkingDir   string              `json:"WorkingDir"`
	Labels       map[string]string   `json:"Labels"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type historyItem struct {
	Created string `json:"created"`
	By      string `json:"created_by"`
}

// Build compiles the program for each platform and writes the archive to out.
func Build(ctx context.Context, opts Options, out io.Writer) (Built, error) {
	built := Built{SBOMs: map[string][]byte{}}
	files, err := baseFiles(ctx)
	if err != nil {
		return built, err
	}
	base, err := makeLayer(files, opts.Created)
	if err != nil {
		return built, err
	}
	blobs := blobStore{}
	var manifests []descriptor
	for _, arch := range opts.Platforms {
		p, err := compile(ctx, opts, arch)
		if err != nil {
			return built, err
		}
		built.SBOMs[arch] = p.sbom
		top, err := makeLayer([]file{{"usr/bin/outlane", 0o755, p.data}, {"usr/share/sbom/outlane.spdx.json", 0o644, p.sbom}}, opts.Created)
		if err != nil {
			return built, err
		}
		d, err := addManifest(blobs, opts, arch, base, top)
		if err != nil {
			return built, err
		}
		manifests = append(manifests, d)
	}
	whole, err := blobs.add(typeIndex, index{SchemaVersion: 2, MediaType: typeIndex, Manifests: manifests, Annotations: opts.labels()})
	if err != nil {
		return built, err
	}
	built.Digest = whole.Digest
	// containerd reads the first name, other tools the second.
	whole.Annotations = map[string]string{"io.containerd.image.name": opts.Name + ":" + opts.Version, "org.opencontainers.image.ref.name": opts.Version}
	entry, err := json.Marshal(index{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{whole}})
	if err != nil {
		return built, fmt.Errorf("write the index: %w", err)
	}
	return built, writeArchive(out, entry, blobs, opts.Created)
}

func addManifest(blobs blobStore, opts Options, arch string, layers ...layer) (descriptor, error) {
	created := opts.Created.UTC().Format(time.RFC3339)
	on := platform{Architecture: arch, OS: "linux"}
	if arch == "arm64" {
		on.Variant = "v8"
	}
	config := imageConfig{
		Created: created, Author: "Outlane", Architecture: arch, Variant: on.Variant, OS: on.OS,
		Config: runConfig{
			User: fmt.Sprintf("%d:%d", UID, UID), ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			Env:        []string{"PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"},
			Entrypoint: []string{"/usr/bin/outlane"}, Cmd: []string{"worker"}, WorkingDir: "/", Labels: opts.labels(),
		},
		RootFS: rootFS{Type: "layers"},
	}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, Annotations: opts.labels()}
	for i, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.diffID)
		config.History = append(config.History, historyItem{created, []string{"certificates, time zones, users", "outlane and its modules"}[i]})
		m.Layers = append(m.Layers, blobs.put(typeLayer, l.data))
	}
	var err error
	if m.Config, err = blobs.add(typeConfig, config); err != nil {
		return descriptor{}, err
	}
	d, err := blobs.add(typeManifest, m)
	d.Platform = &on
	return d, err
}

// labels are the image's labels and annotations.
func (o Options) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.title":         "outlane",
		"org.opencontainers.image.description":   "Ordered outbox from Postgres to NATS JetStream",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.source":        "https://github.com/outlane/outlane",
		"org.opencontainers.image.documentation": "https://github.com/outlane/outlane/tree/main/docs",
		"org.opencontainers.image.version":       o.Version,
		"org.opencontainers.image.created":       o.Created.UTC().Format(time.RFC3339),
	}
	if o.Revision != "" {
		labels["org.opencontainers.image.revision"] = o.Revision
	}
	return labels
}

// blobStore has content by digest.
type blobStore map[string][]byte

func (b blobStore) put(mediaType string, data []byte) descriptor {
	d := digest(data)
	b[d] = data
	return descriptor{MediaType: mediaType, Digest: d, Size: len(data)}
}

func (b blobStore) add(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, fmt.Errorf("write %s: %w", mediaType, err)
	}
	return b.put(mediaType, data), nil
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}
