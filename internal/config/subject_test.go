package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPatternsAgainstEachOther(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b                      string
		aCoversB, bCoversA, share bool
	}{
		{"a", "a", true, true, true},
		{"a", "b", false, false, false},
		{"a", "a.b", false, false, false},
		{"a.b", "a", false, false, false},
		{"a.>", "a", false, false, false},
		{"a.>", "a.b", true, false, true},
		{"a.>", "a.b.c", true, false, true},
		{"a.>", "a.*", true, false, true},
		{"a.*", "a.b", true, false, true},
		{"a.*", "a.b.c", false, false, false},
		{"a.*.c", "a.b.>", false, false, true},
		{"*.b", "a.*", false, false, true},
		{"*.b", "a.c", false, false, false},
		{">", "a", true, false, true},
		{">", "*", true, false, true},
		{"*", ">", false, true, true},
	} {
		require.Equal(t, c.aCoversB, covers(c.a, c.b), "%s covers %s", c.a, c.b)
		require.Equal(t, c.bCoversA, covers(c.b, c.a), "%s covers %s", c.b, c.a)
		require.Equal(t, c.share, overlaps(c.a, c.b), "%s and %s", c.a, c.b)
		require.Equal(t, c.share, overlaps(c.b, c.a), "%s and %s", c.b, c.a)
	}
}
