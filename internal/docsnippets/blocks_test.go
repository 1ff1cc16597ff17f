package docsnippets

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	t.Parallel()
	blocks, err := parse("a\n```sql\nSELECT 1;\n\nSELECT 2;\n```\nb\n```go\n```\n")
	require.NoError(t, err)
	require.Equal(t, []Block{{Language: "sql", Line: 3, Code: "SELECT 1;\n\nSELECT 2;\n"}, {Language: "go", Line: 9}}, blocks)
	for _, bad := range []string{"```\nx\n```", "```sql\n", "```sql\n```sql\n```\n"} {
		_, err := parse(bad)
		require.Error(t, err, bad)
	}
}
