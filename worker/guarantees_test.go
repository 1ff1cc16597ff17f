package worker_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGuaranteesNameTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("../docs/guarantees.md")
	require.NoError(t, err)
	var tests strings.Builder
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var text []byte
			if text, err = os.ReadFile(path); err == nil {
				tests.Write(text)
			}
		}
		return err
	}))
	named := regexp.MustCompile("`(Test[A-Z][A-Za-z0-9]+)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.Contains(t, tests.String(), "func "+name[1]+"(", "docs/guarantees.md names it")
	}
}
