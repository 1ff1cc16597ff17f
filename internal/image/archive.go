package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"time"
)

// file is an entry of a layer. A name that ends with a slash is a directory.
type file struct {
	name string // without a leading slash
	mode int64
	data []byte
}

// layer is a compressed tar file and the digest of what is in it.
type layer struct {
	data   []byte
	diffID string
}

// makeLayer packs files, with their directories, in the order of their names, all of them root's and from the same moment.
func makeLayer(files []file, at time.Time) (layer, error) {
	byName := map[string]file{}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.name)); dir != "."; dir = path.Dir(dir) {
			if _, ok := byName[dir+"/"]; !ok {
				byName[dir+"/"] = file{name: dir + "/", mode: 0o755}
			}
		}
		byName[f.name] = f
	}
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, name := range names {
		if err := addFile(w, byName[name], at); err != nil {
			return layer{}, err
		}
	}
	if err := w.Close(); err != nil {
		return layer{}, fmt.Errorf("pack a layer: %w", err)
	}
	diffID := digest(plain.Bytes())
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return layer{}, fmt.Errorf("compress a layer: %w", err)
	}
	if _, err := plain.WriteTo(z); err != nil {
		return layer{}, fmt.Errorf("compress a layer: %w", err)
	}
	if err := z.Close(); err != nil {
		return layer{}, fmt.Errorf("compress a layer: %w", err)
	}
	return layer{data: packed.Bytes(), diffID: diffID}, nil
}

func addFile(w *tar.Writer, f file, at time.Time) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatPAX}
	if f.name[len(f.name)-1] == '/' {
		header.Typeflag = tar.TypeDir
	}
	if err := w.WriteHeader(header); err != nil {
		return fmt.Errorf("pack %s: %w", f.name, err)
	}
	if _, err := w.Write(f.data); err != nil {
		return fmt.Errorf("pack %s: %w", f.name, err)
	}
	return nil
}

// writeArchive writes an OCI image layout: its version, the index and the blobs by digest.
func writeArchive(out io.Writer, index []byte, blobs map[string][]byte, at time.Time) error {
	files := []file{{"blobs/", 0o755, nil}, {"blobs/sha256/", 0o755, nil}}
	digests := make([]string, 0, len(blobs))
	for d := range blobs {
		digests = append(digests, d)
	}
	slices.Sort(digests)
	for _, d := range digests {
		files = append(files, file{"blobs/sha256/" + d[len("sha256:"):], 0o644, blobs[d]})
	}
	files = append(files, file{"index.json", 0o644, index}, file{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)})
	w := tar.NewWriter(out)
	for _, f := range files {
		if err := addFile(w, f, at); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	return nil
}
