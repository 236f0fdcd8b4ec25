// SPDX-License-Identifier: 0BSD

package main

// What is taken, as files. The text of a file stays as it is, but for the pieces
// that are cut out. So comments keep their place, and a later copy differs from an
// earlier one only where the library does.
//
// Each file begins with a head, by which take knows its files again:
//
//	// SPDX-License-Identifier: 0BSD
//	// stdio.go of mcpwire 0.3.0, commit b3d0d5a40e11: what is needed of it.
//	// To write it again, in a checkout of mcpwire: go run ./testdata/take -to DIR -package mcp stdio-server
//	// Sum of all below: 5f0c…

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ---- Cutting ----

// texts returns the files of package pkg with what is taken, by name, without
// their heads. A file of which nothing is taken is left out.
func (t *taken) texts(pkg string) (map[string][]byte, error) {
	texts, fset, trees := map[string][]byte{}, token.NewFileSet(), []*ast.File{}
	for _, file := range t.files {
		c := &cutter{taken: t, file: file}
		c.cutDeclarations()
		if len(c.live) == 0 {
			continue
		}
		c.cutSections()
		c.cutAdvice()
		c.replace(0, c.offset(file.tree.Name.End()), "package "+pkg)
		text, err := format.Source(c.apply())
		if err != nil {
			return nil, fmt.Errorf("what is left of %s has a fault: %w", file.name, err)
		}
		tree, err := parser.ParseFile(fset, file.name, text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		texts[file.name], trees = text, append(trees, tree)
	}
	if _, err := t.check(fset, trees, nil); err != nil {
		return nil, fmt.Errorf("what is taken does not compile; this is a fault of take: %w", err)
	}
	return texts, nil
}

// cutter cuts what is not taken out of one file.
type cutter struct {
	*taken
	file  *source
	edits []edit
	all   []int // the offsets of the declarations
	live  []int // of those that stay
}

// edit replaces a piece of the text.
type edit struct {
	from, to int
	by       string
}

func (c *cutter) replace(from, to int, by string) { c.edits = append(c.edits, edit{from, to, by}) }

func (c *cutter) offset(p token.Pos) int { return c.fset.Position(p).Offset }

// cut cuts a node, and the comment above it. Where nothing else stands on its
// lines, they go with the comment behind it.
func (c *cutter) cut(node ast.Node, doc *ast.CommentGroup) {
	from, to := c.offset(node.Pos()), c.offset(node.End())
	if doc != nil {
		from = c.offset(doc.Pos())
	}
	line := bytes.LastIndexByte(c.file.text[:from], '\n') + 1
	before := bytes.TrimSpace(c.file.text[line:from])
	rest, _, _ := bytes.Cut(c.file.text[to:], []byte("\n"))
	behind := bytes.TrimSpace(rest)
	if len(before) == 0 && (len(behind) == 0 || bytes.HasPrefix(behind, []byte("//"))) {
		from, to = line, min(to+len(rest)+1, len(c.file.text))
	}
	c.replace(from, to, "")
}

// apply returns the text with all edits. They may overlap.
func (c *cutter) apply() (text []byte) {
	slices.SortFunc(c.edits, func(a, b edit) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	at := 0
	for _, e := range c.edits {
		if e.to > at {
			text = append(append(text, c.file.text[at:max(at, e.from)]...), e.by...)
			at = e.to
		}
	}
	return append(text, c.file.text[at:]...)
}

// cutDeclarations cuts what is not taken, and notes where the rest is.
func (c *cutter) cutDeclarations() {
	for _, d := range c.file.tree.Decls {
		c.all = append(c.all, c.offset(d.Pos()))
		switch d := d.(type) {
		case *ast.FuncDecl:
			if c.isTaken(d.Name) {
				c.live = append(c.live, c.offset(d.Pos()))
			} else {
				c.cut(d, d.Doc)
			}
		case *ast.GenDecl:
			c.cutSpecs(d)
		}
	}
}

// cutSpecs cuts imports, types, vars and consts.
func (c *cutter) cutSpecs(d *ast.GenDecl) {
	dead := 0
	cutUnless := func(isTaken bool, spec ast.Spec, doc *ast.CommentGroup) {
		if !isTaken {
			c.cut(spec, doc)
			dead++
		}
	}
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.ImportSpec:
			cutUnless(c.imports[c.info.PkgNameOf(spec)], spec, spec.Doc)
		case *ast.ValueSpec:
			cutUnless(c.isTaken(spec.Names[0]), spec, spec.Doc)
		case *ast.TypeSpec:
			cutUnless(c.isTaken(spec.Name), spec, spec.Doc)
			if s := structOf(spec); s != nil {
				c.cutFields(s)
			}
		}
	}
	if dead == len(d.Specs) {
		c.cut(d, d.Doc)
	} else if d.Tok != token.IMPORT {
		c.live = append(c.live, c.offset(d.Pos()))
	}
}

func (c *cutter) cutFields(s *ast.StructType) {
	for _, field := range s.Fields.List {
		if len(field.Names) > 0 && !c.isTaken(field.Names[0]) {
			c.cut(field, field.Doc)
		}
	}
}

func (c *cutter) isTaken(id *ast.Ident) bool { return c.because[c.units[c.info.Defs[id]]] != nil }

// banner matches a banner: its rank, and the text right below it.
var banner = regexp.MustCompile(`(?m)^// (====|----).*\n((?://.*\n)*)`)

// cutSections cuts the sections of which nothing is left, with their banners and
// all comments. A section ends at the next banner of its rank, or of a higher one:
// "====" is higher than "----". If less than a tenth of the declarations is left, the
// text right below the banner goes: it tells how things work that are not there.
func (c *cutter) cutSections() {
	text := c.file.text
	banners := banner.FindAllSubmatchIndex(text, -1)
	for i, b := range banners {
		rank, end := text[b[2]:b[3]], len(text)
		for _, later := range banners[i+1:] {
			if bytes.Compare(text[later[2]:later[3]], rank) >= 0 {
				end = later[0]
				break
			}
		}
		live, all := countBetween(c.live, b[0], end), countBetween(c.all, b[0], end)
		switch {
		case live == 0:
			c.replace(b[0], end, "")
		case live*10 < all:
			c.replace(b[4], b[5], "")
		}
	}
}

// countBetween counts the offsets between two others.
func countBetween(offsets []int, from, to int) (n int) {
	for _, at := range offsets {
		if from < at && at < to {
			n++
		}
	}
	return n
}

// advisers are the phrases with which the files of mcpwire begin to say how to read or copy
// them as a whole.
var advisers = []string{
	"Copy this file with",
	"To see it work",
	"A newcomer can",
	"For the first time",
	"On a first reading",
	"If you read this file for the first time",
	"Whoever reads this file for the first time",
}

// advice matches the text from such a phrase to the end of its paragraph, with the blank
// line above it if it begins the paragraph. A phrase may be broken into two lines.
var advice = regexp.MustCompile(`((\n//)?\n//)? (` + strings.ReplaceAll(strings.Join(advisers, "|"), " ", `( |\n// )`) + `)(.|\n// )*`)

// cutAdvice cuts the advice out of the comment between the package clause and the imports.
func (c *cutter) cutAdvice() {
	from := c.offset(c.file.tree.Name.End())
	head := c.file.text[from:c.offset(c.file.tree.Decls[0].Pos())]
	for _, found := range advice.FindAllIndex(head, -1) {
		c.replace(from+found[0], from+found[1], "")
	}
}

// ---- Where it comes from ----

// origin finds out the version and the commit of the library, for the heads. The
// commit ends with -dirty if the checkout was changed.
func origin(root string) (version, commit string) {
	version, commit = "unknown", "unknown"
	if program, err := os.ReadFile(filepath.Join(root, "main.go")); err == nil {
		if found := regexp.MustCompile(`(?m)^const version = "(.*)"\r?$`).FindSubmatch(program); found != nil {
			version = string(found[1])
		}
	}
	// The folder may lie in somebody else's repository: only its own one counts.
	describe := exec.Command("git", "--git-dir="+filepath.Join(root, ".git"), "--work-tree="+root, "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty")
	if out, err := describe.Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return version, commit
}

// head returns the head of a file whose other text is body.
func (l *library) head(name string, body []byte, o *options) string {
	what := strings.Join(o.what, " ")
	if o.test {
		what = "-test " + what
	}
	return fmt.Sprintf("// SPDX-License-Identifier: 0BSD\n// %s of mcpwire %s, commit %s: what is needed of it.\n"+again+"%s %s\n// Sum of all below: %s\n\n",
		name, l.version, l.commit, o.pkg, what, sum(body))
}

func sum(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }

const again = "// To write it again, in a checkout of mcpwire: go run ./testdata/take -to DIR -package "

var headPattern = regexp.MustCompile(`^// SPDX-License-Identifier: 0BSD\n// .* of mcpwire .*\n` + regexp.QuoteMeta(again) + `(\S+) (-test )?(.+)\n// Sum of all below: ([0-9a-f]{64})\n\n`)

// ---- The folder ----

// folder is the folder that take writes to.
type folder struct {
	path   string
	ours   map[string]*written // the files that take has written, by name
	others map[string]string   // the packages of all other files of Go
}

// written is a file that take has written.
type written struct {
	pkg, what string
	test      bool   // it was written with tests
	sum       string // of the body that take has written
	body      []byte // without the head
	isChanged bool   // by somebody else
}

// openFolder reads the folder, and fills in what the command line leaves open.
func openFolder(o *options) (*folder, error) {
	full, err := filepath.Abs(o.to)
	if err != nil {
		return nil, err
	}
	f := &folder{path: full, ours: map[string]*written{}, others: map[string]string{}}
	entries, err := os.ReadDir(full)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".go" {
			if err := f.add(entry.Name()); err != nil {
				return nil, err
			}
		}
	}
	return f, f.complete(o)
}

// withoutCR undoes what Git may do to a file on Windows.
func withoutCR(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")) }

func (f *folder) add(name string) error {
	text, err := os.ReadFile(filepath.Join(f.path, name))
	if err != nil {
		return err
	}
	text = withoutCR(text)
	if head := headPattern.FindSubmatch(text); head != nil {
		body := text[len(head[0]):]
		w := &written{pkg: string(head[1]), test: len(head[2]) > 0, what: string(head[3]), sum: string(head[4]), body: body}
		w.isChanged = sum(body) != w.sum
		f.ours[name] = w
		return nil
	}
	f.others[name] = ""
	if tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly); err == nil && !isTest(name) {
		f.others[name] = tree.Name.Name
	}
	return nil
}

// complete finds out what to take, and the name of the package, if the command line
// does not say it.
func (f *folder) complete(o *options) error {
	for _, name := range slices.Sorted(maps.Keys(f.ours)) {
		w := f.ours[name]
		if len(o.what) == 0 {
			o.what, o.test = strings.Fields(w.what), o.test || w.test
		}
		o.pkg = cmp.Or(o.pkg, w.pkg)
	}
	if len(o.what) == 0 {
		return fmt.Errorf("what? Take has written nothing in %s that it could write again; take without flags says what there is", f.path)
	}
	for _, name := range slices.Sorted(maps.Keys(f.others)) {
		pkg := f.others[name]
		if o.pkg = cmp.Or(o.pkg, pkg); pkg != "" && pkg != o.pkg {
			return fmt.Errorf("%s holds package %s, in %s: all files of a folder have one package, so it cannot be %s", f.path, pkg, name, o.pkg)
		}
	}
	o.pkg = cmp.Or(o.pkg, filepath.Base(f.path))
	if !token.IsIdentifier(o.pkg) || o.pkg == "_" {
		return fmt.Errorf("%q cannot be the name of a package: give another one with -package", o.pkg)
	}
	return nil
}

// write writes the files, removes those that are not needed any more, and says
// what has changed. A file that its owner has changed is kept. If a file that take
// has not written is in the way, nothing is written.
func (f *folder) write(out io.Writer, l *library, texts map[string][]byte, o *options) error {
	var inTheWay []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if _, ok := f.others[name]; ok {
			inTheWay = append(inTheWay, filepath.Join(f.path, name))
		}
	}
	if len(inTheWay) > 0 {
		return fmt.Errorf("nothing was written, because these files are not from take: %s. "+
			"Move them away or delete them, take again, and then bring your changes into the new files", strings.Join(inTheWay, ", "))
	}
	if err := os.MkdirAll(f.path, 0o777); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, package %s:\n", f.path, o.pkg)
	var toMerge []string
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		body, old := texts[name], f.ours[name]
		text := append([]byte(l.head(name, body, o)), body...)
		path, lines := filepath.Join(f.path, name), bytes.Count(text, []byte("\n"))
		switch {
		case old == nil || !old.isChanged || o.force:
			fmt.Fprintf(out, "%s: %d lines%s\n", name, lines, f.changes(name, body))
		case old.sum == sum(body):
			fmt.Fprintf(out, "%s: kept with your changes, mcpwire has none\n", name)
			continue
		default:
			toMerge, path = append(toMerge, name), path+".new"
			fmt.Fprintf(out, "%s: kept with your changes; the text of mcpwire is in %s.new%s\n", name, name, f.changes(name, body))
		}
		if err := os.WriteFile(path, text, 0o666); err != nil {
			return fmt.Errorf("the files in %s are not complete: run take again (%w)", f.path, err)
		}
	}
	if err := f.removeRest(out, texts, o); err != nil {
		return err
	}
	if len(toMerge) > 0 {
		return fmt.Errorf("both you and mcpwire have changed %s. The other files are new, so the package may not compile "+
			"until you have brought your changes into the .new file and renamed it; -force drops your changes instead", strings.Join(toMerge, ", "))
	}
	return nil
}

// removeRest removes the files of which nothing is needed any more.
func (f *folder) removeRest(out io.Writer, texts map[string][]byte, o *options) error {
	for _, name := range slices.Sorted(maps.Keys(f.ours)) {
		switch {
		case texts[name] != nil:
		case f.ours[name].isChanged && !o.force:
			fmt.Fprintf(out, "%s: kept with your changes, but nothing of it is needed any more\n", name)
		default:
			if err := os.Remove(filepath.Join(f.path, name)); err != nil {
				return err
			}
			reason := "nothing of it is needed any more"
			if isTest(name) && !o.test {
				reason = "because -test was not given"
			}
			fmt.Fprintf(out, "%s: removed, %s\n", name, reason)
		}
	}
	return nil
}

// changes says what is new in a file since take wrote it last: the exported names, and how
// many others.
func (f *folder) changes(name string, body []byte) string {
	old := f.ours[name]
	if old == nil {
		return ", new"
	}
	if bytes.Equal(old.body, body) {
		return ", as before"
	}
	before := maps.Collect(declarations(old.body))
	lines, others := "", 0
	note := func(sign, name string) {
		_, method, isMethod := strings.Cut(name, ".")
		if ast.IsExported(name) && (!isMethod || ast.IsExported(method)) {
			lines += "\n  " + sign + " " + name
		} else {
			others++
		}
	}
	for name, text := range declarations(body) {
		switch was, known := before[name]; {
		case !known:
			note("+", name)
		case was != text:
			note("~", name)
		}
		delete(before, name)
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		note("-", name)
	}
	if lines == "" && others == 0 {
		return ", changed outside of its declarations"
	}
	return fmt.Sprintf(", changed (+ new, - gone or not needed any more, ~ changed; and %d that are not exported):%s", others, lines)
}

// ---- What a file holds ----

// declarations yields the name and the text of what a file declares, comments
// included. Of a file that somebody has broken it yields nothing.
func declarations(text []byte) iter.Seq2[string, string] {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, "", text, parser.ParseComments|parser.SkipObjectResolution)
	return func(yield func(name, text string) bool) {
		if err != nil {
			return
		}
		for _, d := range tree.Decls {
			for _, n := range names(d) {
				from := n.node.Pos()
				if n.doc != nil {
					from = n.doc.Pos()
				}
				if !yield(n.name, string(text[fset.Position(from).Offset:fset.Position(n.node.End()).Offset])) {
					return
				}
			}
		}
	}
}

// linesOfCode counts the lines that hold more than a comment.
func linesOfCode(text []byte) (n int) {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("//")) {
			n++
		}
	}
	return n
}
