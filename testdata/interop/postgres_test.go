package interop

import (
	"regexp"
	"strings"
	"testing"
)

// TestServerPostgres: the server declares resources, and has no templates of them: it does not know the method. That is no failure. There is
// no database here, so that it cannot list resources. That is one, and does not hide the other lists.
func TestServerPostgres(t *testing.T) {
	t.Parallel()
	command := optional(t, "@modelcontextprotocol/server-postgres", "dist/index.js")
	out := call(t, nil, "", append(command, "postgresql://127.0.0.1:1/demo")...)
	for _, row := range []string{
		`revision +2024-11-05`,
		`serverInfo +\{"name":"example-servers/postgres","version":"0\.1\.0"\}`,
		`tools +query: .*`,
	} {
		if !regexp.MustCompile(`(?m)^` + row + `$`).MatchString(out.stdout) {
			t.Errorf("no %s", row)
		}
	}
	shown := regexp.MustCompile(`(?m)^mcpwire: .*$`).FindAllString(out.stderr, -1)
	if out.exit != 1 || len(shown) != 1 || !strings.HasPrefix(shown[0], "mcpwire: resources/list: ") {
		t.Errorf("exit %d, stderr has %q", out.exit, shown)
	}
}
