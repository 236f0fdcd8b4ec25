// Package project tests what belongs to no file of the library alone: that each requirement has a proof, and that
// the README shows what happens. Its tests run in the folder of the project.
package project

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"interop/wire"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// projectFolder is where README.md and the sources are, seen from here.
const projectFolder = "../../.."

func TestMain(m *testing.M) {
	if err := os.Chdir(projectFolder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Each row of testdata/requirements.tsv names what shows that we do as the specification says: a test, or one of its rows, as
// TestName/row; a case of a golden file; a lesson; a test of testdata/interop; or the reason why it does not apply. What is named must be
// there, and nothing but -short may skip it, so whoever runs all tests has run it.
func TestRequirements(t *testing.T) {
	proofs := readProofs(t, "main_test.go")
	interop, _ := filepath.Glob("testdata/interop/*_test.go")
	folders, _ := filepath.Glob("testdata/interop/*/*_test.go")
	peers := readProofs(t, append(interop, folders...)...)
	text := read(t, "testdata/requirements.tsv")
	seen, rows := map[string]bool{}, strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range rows[1:] {
		columns := strings.Split(line, "\t")
		if len(columns) != 6 || slices.Contains(columns, "") || seen[columns[0]] {
			t.Errorf("not six columns, or there twice: %s", line)
			continue
		}
		id, revisions, level := columns[0], columns[1], columns[2]
		seen[id] = true
		for version := range strings.SplitSeq(revisions, "..") {
			if !slices.ContainsFunc(wire.Revisions, func(r wire.Revision) bool { return r.Version == version }) {
				t.Errorf("%s: no revision: %s", id, version)
			}
		}
		if !slices.Contains([]string{"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "MAY"}, level) {
			t.Errorf("%s: no level: %s", id, level)
		}
		for proof := range strings.SplitSeq(columns[5], "; ") {
			if !proofs.show(proof) && !peers.show(strings.TrimPrefix(proof, "interop ")) {
				t.Errorf("%s: there is no %s", id, proof)
			}
		}
	}
	if len(seen) < 400 {
		t.Errorf("%d rows", len(seen))
	}
}

// proofs are the functions of test files, each with the strings in it, and in what it uses.
type proofs map[string]map[string]bool

func readProofs(t *testing.T, files ...string) proofs {
	found, uses := proofs{}, map[string][]string{}
	for _, name := range files {
		for _, decl := range parse(t, name).Decls {
			key := ""
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				key = decl.Name.Name
			case *ast.GenDecl:
				if v, ok := decl.Specs[0].(*ast.ValueSpec); ok { // a table
					key = v.Names[0].Name
				}
			}
			texts := map[string]bool{}
			ast.Inspect(decl, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.IfStmt: // what only -short skips is a proof
					if call, ok := n.Cond.(*ast.CallExpr); ok && fmt.Sprint(call.Fun) == "&{testing Short}" {
						return false
					}
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
						texts[text] = true
					}
				case *ast.Ident:
					uses[key] = append(uses[key], n.Name)
				}
				return true
			})
			found[key] = texts
		}
	}
	for name, used := range uses {
		for _, other := range used {
			maps.Copy(found[name], found[other])
		}
		if slices.Contains(used, "Skip") && len(files) == 1 {
			delete(found, name)
		}
	}
	return found
}

// show tells whether something that a row names is there.
func (p proofs) show(proof string) bool {
	if reason, ok := strings.CutPrefix(proof, "n/a: "); ok {
		return len(reason) > 10
	}
	if lesson, err := filepath.Glob("testdata/" + proof + ".md"); err == nil && len(lesson) == 1 {
		return true
	}
	if subject, title, ok := strings.Cut(strings.TrimPrefix(proof, "case "), "/"); ok && strings.HasPrefix(proof, "case ") {
		text, err := os.ReadFile("testdata/cases/" + subject + ".md")
		return err == nil && strings.Contains("\n"+string(text), "\n## "+title+"\n")
	}
	test, row, named := strings.Cut(proof, "/")
	texts, ok := p[test]
	return ok && regexp.MustCompile("^(Test|Fuzz|Example)").MatchString(test) && (!named || texts[row])
}

// Of the codes that JSON-RPC and MCP keep for themselves we know those that they define, and no other, in all sources and lessons.
// 2026-07-28 basic#error-codes: -32000..-32019 have no meaning but for -32002, and -32042 is of the past.
func TestErrorCodes(t *testing.T) {
	defined := []string{"-32700", "-32600", "-32601", "-32602", "-32603", "-32002", "-32020", "-32021", "-32022", "-32768..-32000", "-32099"} // the range, in a comment; and where the codes of the specification end
	for _, files := range []string{"[a-ln-z]*.go", "main.go", "testdata/[0-9]*.md"} {
		if inFiles(t, files, `-32\d{3}\b(\.\.-32000)?`, func(file, code string) {
			if !slices.Contains(defined, code) {
				t.Errorf("%s: %s", file, code)
			}
		}) == 0 {
			t.Error("nothing matches", files)
		}
	}
}

// What a lesson calls a URI is one of RFC 3986: ASCII, with all else as %C3%A9. The schemas have each `uri` in "format": "uri".
func TestLessonsHaveURIs(t *testing.T) {
	seen := inFiles(t, "testdata/[0-9]*.md", `"uri":"[^"]*"|Mcp-Name: note:.*`, func(file, text string) {
		uri := strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(text, `"`), `"uri":"`), "Mcp-Name: ")
		if parsed, err := url.Parse(uri); err != nil || !parsed.IsAbs() || strings.ContainsFunc(uri, func(r rune) bool { return r >= utf8.RuneSelf }) {
			t.Errorf("%s: %s", file, text)
		}
	})
	if seen < 10 {
		t.Error("URIs seen:", seen)
	}
}

// The keys of _meta in the lessons follow the grammar: an optional prefix of labels, a name. Of the reserved ones only those are used
// that are defined. 2026-07-28 basic#meta.
func TestMetaKeys(t *testing.T) {
	grammar := regexp.MustCompile(`^([A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$`)
	reserved := regexp.MustCompile(`^[^/]*\b(modelcontextprotocol|mcp)[./]|^[^/]*$`) // by the second label, or in 2025-06-18 by any but the last
	defined := []string{"progressToken"}
	for _, name := range []string{"protocolVersion", "clientInfo", "clientCapabilities", "logLevel", "serverInfo", "subscriptionId"} {
		defined = append(defined, "io.modelcontextprotocol/"+name)
	}
	own := 0
	inFiles(t, "testdata/[0-9]*.md", `"_meta":\{.*`, func(file, text string) {
		var keys map[string]json.RawMessage
		if err := json.NewDecoder(strings.NewReader(strings.TrimPrefix(text, `"_meta":`))).Decode(&keys); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for key := range keys {
			if !grammar.MatchString(key) || reserved.MatchString(key) && !slices.Contains(defined, key) {
				t.Errorf("%s: %q", file, key)
			}
			if !reserved.MatchString(key) {
				own++
			}
		}
	})
	if own == 0 {
		t.Error("no key of our own")
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goCommand runs the go command in a folder.
func goCommand(t *testing.T, dir, system string, args ...string) {
	t.Helper()
	began, cmd := time.Now(), exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if system != runtime.GOOS {
		cmd.Env = append(cmd.Env, "GOOS="+system, "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q for %s: %v\n%s", args, system, err, out)
	}
	t.Logf("go %s for %s: %v", args[0], system, time.Since(began).Round(10*time.Millisecond))
}

func parse(t *testing.T, name string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// declared is what belongs to a type: where its methods and fields stand, by their names.
type declared struct {
	file    string
	methods map[string]string // the file of each
	fields  map[string]string // the type of each
}

// declaredTypes returns the types of the library, by their names.
func declaredTypes(t *testing.T) map[string]*declared {
	all := map[string]*declared{}
	of := func(name string) *declared {
		if all[name] == nil {
			all[name] = &declared{methods: map[string]string{}, fields: map[string]string{}}
		}
		return all[name]
	}
	for _, name := range libraryFiles {
		ast.Inspect(parse(t, name), func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					of(receiverOf(n)).methods[n.Name.Name] = name
				}
			case *ast.TypeSpec:
				of(n.Name.Name).file = name
				if s, ok := n.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, f := range field.Names {
							of(n.Name.Name).fields[f.Name] = types.ExprString(field.Type)
						}
					}
				}
			}
			return true
		})
	}
	return all
}

// Methods that are called through an interface, such as Is of an error, stand in the file of their type. If one stood in another, a copy without
// that file would compile, and behave in another way.
func TestMethodsStandWithTheirType(t *testing.T) {
	for name, d := range declaredTypes(t) {
		for _, method := range []string{"Is", "As", "Unwrap", "Error", "String", "MarshalJSON", "UnmarshalJSON", "ServeHTTP", "Handle", "Dial", "Read", "Write", "Close"} {
			if file := d.methods[method]; file != "" && file != d.file {
				t.Errorf("%s has a method %s in %s; the type stands in %s", name, method, file, d.file)
			}
		}
	}
}

// The course and the other documents name methods and fields of the code, such as `Peer.dispatch`. Each of them is there.
func TestCourseNamesWhatIsThere(t *testing.T) {
	known, found := declaredTypes(t), 0
	for path, text := range documents(t) {
		switch path { // they name what was there once, or what is in another program
		case "testdata/CHANGES.md", "testdata/interop/README.md", "testdata/second/README.md":
			continue
		}
		for _, match := range regexp.MustCompile("`([A-Za-z]+)\\.([A-Za-z]+)`").FindAllStringSubmatch(text, -1) {
			d, name := known[match[1]], match[2]
			switch {
			case d == nil || name == "go": // a package, a name of Go, or a file
			case d.methods[name] == "" && d.fields[name] == "":
				t.Errorf("%s names %s, which is not there", path, match[0])
			default:
				found++
			}
		}
	}
	if found < 30 {
		t.Errorf("%d names found", found)
	}
}

// receiverOf returns the name of the type of a method.
func receiverOf(d *ast.FuncDecl) string {
	name := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
	name, _, _ = strings.Cut(name, "[") // of a generic type
	return name
}

// What README.md and the pages beside it show is what happens: the commands of each are given to one shell as they stand, and print what is
// shown. In a console block each is behind a $, with its output below it; a block of the shell, which can be pasted, is followed by a block
// with its output. Only what is random differs: ids and the port.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	for _, tool := range []string{"bash", "curl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	for document, atLeast := range map[string]int{"README.md": 1, "testdata/by-hand.md": 5, "testdata/first/README.md": 5, "testdata/second/README.md": 7} {
		t.Run(document, func(t *testing.T) {
			steps := stepsOf(t, document)
			if len(steps) < atLeast {
				t.Errorf("%d steps", len(steps))
			}
			var script strings.Builder
			for _, step := range steps {
				script.WriteString(step.commands + "\n")
			}
			retries := strings.Count(script.String(), "go run . call") * 4 // where compiling takes more than five seconds, it falls back to an older revision
			for ; !follow(t, steps, retries == 0) && retries > 0; retries-- {
			}
		})
	}
}

// step is what a document gives to the shell, and what that prints.
type step struct{ commands, want string }

func stepsOf(t *testing.T, document string) (steps []step) {
	text := read(t, document)
	for _, block := range regexp.MustCompile("(?s)```(console|sh)\n(.*?)```\n(?:\n```text\n(.*?)```)?").FindAllStringSubmatch(text, -1) {
		if block[1] == "sh" {
			steps = append(steps, step{block[2], block[3]})
			continue
		}
		for shown := range strings.SplitSeq("\n"+block[2], "\n$ ") {
			if command, want, _ := strings.Cut(shown, "\n"); command != "" && !strings.HasPrefix(command, "go test") {
				steps = append(steps, step{command, want})
			}
		}
	}
	return steps
}

// follow gives steps to one shell, and reports whether each prints what it should. The servers testdata/first and testdata/second are built already, and so
// is mcpwire as a server. What the reader starts in another terminal runs in the background.
func follow(t *testing.T, steps []step, isLast bool) (ok bool) {
	const mark = "\nend of step\n"
	servers := t.TempDir()
	goCommand(t, ".", runtime.GOOS, "build", "-o", servers, ".", "./testdata/first", "./testdata/second")
	addresses := strings.NewReplacer("127.0.0.1:8080", freeAddress(t), "127.0.0.1:8081", freeAddress(t))
	programs := strings.NewReplacer("go run ./testdata/", servers+"/", "go run . -trace -http", servers+"/mcpwire -trace -http")
	script := "trap 'kill $(jobs -p) 2>/dev/null' EXIT\n"
	for _, step := range steps {
		commands := programs.Replace(addresses.Replace(strings.TrimSuffix(step.commands, "\n")))
		if address := served.FindString(commands); strings.HasPrefix(commands, servers) && address != "" {
			commands += " 2>/dev/null & until curl -s" + strings.TrimPrefix(address, " -http") + " >/dev/null; do sleep 0.1; done"
		}
		script += commands + "\necho; echo end of step\n"
	}
	out, err := exec.Command("bash", "-c", script).Output()
	printed := strings.Split(strings.ReplaceAll(string(out), "\r", ""), mark)
	if err != nil || len(printed) != len(steps)+1 {
		t.Fatalf("%v: %s", err, out)
	}
	ok = true
	for i, step := range steps {
		got, want := withoutRandom(printed[i]), withoutRandom(step.want)
		if ok = ok && got == want; got != want && isLast {
			t.Errorf("%s\ngot\n%s\nwant\n%s", step.commands, got, want)
		}
	}
	return ok
}

var served = regexp.MustCompile(` -http \S+`)

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// withoutRandom returns a text without what differs each time.
func withoutRandom(text string) string {
	text = regexp.MustCompile(`(?m)^Mcp-Session-Id: [A-Z2-7]{26}$`).ReplaceAllString(text, "Mcp-Session-Id: ID")
	text = regexp.MustCompile(`(?m)^id: [0-9a-f]{8}\.`).ReplaceAllString(text, "id: TAG.")
	return strings.TrimSpace(regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, "127.0.0.1:PORT"))
}

// inFiles calls f for what a pattern finds in files, and returns how often that was.
func inFiles(t *testing.T, files, pattern string, f func(file, text string)) (found int) {
	names, _ := filepath.Glob(files)
	for _, name := range names {
		text := read(t, name)
		for _, match := range regexp.MustCompile(pattern).FindAllString(text, -1) {
			f(name, match)
			found++
		}
	}
	return found
}

// The golden files are the same after a checkout with core.autocrlf=true, which Git for Windows sets: no line of .gitattributes is missing.
func TestGoldenFilesKeepTheirLineEnds(t *testing.T) {
	if text := read(t, "testdata/.gitattributes"); !strings.Contains("\n"+text, "\n* -text\n") {
		t.Errorf("a checkout may change them: %s", text)
	}
}

// Each file that is copied says where it comes from, of which version it is, and under which licence.
func TestFilesSayWhereTheyComeFrom(t *testing.T) {
	source := read(t, "main.go")
	version := regexp.MustCompile(`(?m)^const version = "(.*)"$`).FindStringSubmatch(source)
	if version == nil {
		t.Fatal("main.go has no version")
	}
	for _, name := range libraryFiles {
		want := fmt.Sprintf("// SPDX-License-Identifier: 0BSD\n// %s of mcpwire %s, ", name, version[1])
		if !strings.HasPrefix(read(t, name), want) {
			t.Errorf("%s does not begin with %q", name, want)
		}
	}
}
