package partition_test

import (
	_ "embed"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outlane/outlane/partition"
)

//go:embed testdata/vectors.json
var vectorsJSON []byte

// vector is an entry of testdata/vectors.json, which was not made with this package's code.
type vector struct {
	Description string
	Text        string
	Repeat      int
	Bytes       int
	Hash        uint32
	Partitions  map[string]int
}

func (v vector) key() string { return strings.Repeat(v.Text, v.Repeat) }

func vectors(t testing.TB) []vector {
	t.Helper()
	var file struct{ Vectors []vector }
	require.NoError(t, json.Unmarshal(vectorsJSON, &file))
	require.Len(t, file.Vectors, 17)
	return file.Vectors
}

func TestVectorsInGo(t *testing.T) {
	t.Parallel()
	hashes := map[uint32]string{}
	for _, v := range vectors(t) {
		require.Len(t, v.key(), v.Bytes, v.Description)
		require.Equal(t, v.Hash, partition.Hash(v.key()), v.Description)
		require.Len(t, v.Partitions, 10, v.Description)
		for n, want := range v.Partitions {
			n, err := strconv.Atoi(n)
			require.NoError(t, err)
			require.Equal(t, want, partition.Of(v.key(), n), "%s among %d", v.Description, n)
		}
		hashes[v.Hash] = v.Description
	}
	require.Len(t, hashes, 17, "each is another key")
	require.Contains(t, hashes, uint32(0))
	require.Contains(t, hashes, uint32(math.MaxUint32))
}

func TestOfIsInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, partition.MaxPartitions).Draw(t, "n")
		p := partition.Of(rapid.String().Draw(t, "key"), n)
		require.GreaterOrEqual(t, p, 0)
		require.Less(t, p, n)
	})
	require.Panics(t, func() { partition.Of("key", 0) })
}
