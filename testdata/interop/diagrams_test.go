package interop

import (
	"strings"
	"testing"
)

// The pictures of the README are mermaid, which the pages of hosts draw. What mermaid cannot parse, they show as an error.
func TestDiagrams(t *testing.T) {
	node := script(t, "mermaid/dist/mermaid.core.mjs")[0]
	out := run(t, nil, "", node, "mermaid.mjs", "../../README.md")
	if out.exit != 0 || strings.TrimSpace(out.stdout) != "5" {
		t.Errorf("%s%s", out.stdout, out.stderr)
	}
}
