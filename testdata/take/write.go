// SPDX-License-Identifier: 0BSD

package main

// What is taken, as files. The text of a file stays as it is, but for the pieces
// that are cut out. So comments keep their place, and a later copy differs from an
// earlier one only where the library does.
//
// Each file begins with a head, by which take knows its files again:
//
//	// SPDX-License-Identifier: 0BSD
//	// stdio.go of mcpwire 0.2.0, commit b3d0d5a40e11: what is needed of it.
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
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
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
		if !c.cutDeclarations() {
			continue
		}
		c.cutComments()
		c.cutImports()
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
	live  []token.Pos // where the declarations are that stay
}

// edit replaces a piece of the text.
type edit struct {
	from, to int
	by       string
}

func (c *cutter) replace(from, to int, by string) { c.edits = append(c.edits, edit{from, to, by}) }

func (c *cutter) offset(p token.Pos) int { return c.fset.Position(p).Offset }

// cut cuts a node with its comments. Where they fill whole lines, the lines go.
func (c *cutter) cut(node ast.Node, comments ...*ast.CommentGroup) {
	from, to := c.offset(node.Pos()), c.offset(node.End())
	for _, comment := range comments {
		if comment != nil {
			from, to = min(from, c.offset(comment.Pos())), max(to, c.offset(comment.End()))
		}
	}
	line := bytes.LastIndexByte(c.file.text[:from], '\n') + 1
	rest, _, _ := bytes.Cut(c.file.text[to:], []byte("\n"))
	if len(bytes.TrimSpace(c.file.text[line:from])) == 0 && len(bytes.TrimSpace(rest)) == 0 {
		from, to = line, min(to+len(rest)+1, len(c.file.text))
	}
	c.replace(from, to, "")
}

// apply returns the text with all edits. An edit within another one is left out.
func (c *cutter) apply() (text []byte) {
	slices.SortFunc(c.edits, func(a, b edit) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	at := 0
	for _, e := range c.edits {
		if e.from >= at {
			text = append(append(text, c.file.text[at:e.from]...), e.by...)
			at = e.to
		}
	}
	return append(text, c.file.text[at:]...)
}

// cutDeclarations returns false if nothing is left.
func (c *cutter) cutDeclarations() bool {
	for _, d := range c.file.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if c.isTaken(d.Name) {
				c.live = append(c.live, d.Pos())
			} else {
				c.cut(d, d.Doc, c.behind(d))
			}
		case *ast.GenDecl:
			if d.Tok != token.IMPORT {
				c.cutSpecs(d)
			}
		}
	}
	return len(c.live) > 0
}

// cutSpecs cuts types, vars and consts.
func (c *cutter) cutSpecs(d *ast.GenDecl) {
	var dead []func()
	for _, spec := range d.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			if !c.isTaken(spec.Names[0]) {
				dead = append(dead, func() { c.cut(spec, spec.Doc, spec.Comment) })
			}
		case *ast.TypeSpec:
			if !c.isTaken(spec.Name) {
				dead = append(dead, func() { c.cut(spec, spec.Doc, spec.Comment) })
			} else if s, ok := spec.Type.(*ast.StructType); ok {
				c.cutFields(s)
			}
		}
	}
	if len(dead) == len(d.Specs) {
		c.cut(d, d.Doc, c.behind(d))
		return
	}
	c.live = append(c.live, d.Pos())
	for _, cut := range dead {
		cut()
	}
}

func (c *cutter) cutFields(s *ast.StructType) {
	for _, field := range s.Fields.List {
		var names []string
		for _, id := range field.Names {
			if c.isTaken(id) {
				names = append(names, id.Name)
			}
		}
		switch n := len(field.Names); {
		case n > 0 && len(names) == 0:
			c.cut(field, field.Doc, field.Comment)
		case len(names) < n:
			c.replace(c.offset(field.Names[0].Pos()), c.offset(field.Names[n-1].End()), strings.Join(names, ", "))
		}
	}
}

func (c *cutter) isTaken(id *ast.Ident) bool { return c.has(c.units[c.info.Defs[id]]) }

// behind returns the comment that ends the last line of a declaration; nil: none.
func (c *cutter) behind(d ast.Decl) *ast.CommentGroup {
	line := c.fset.Position(d.End()).Line
	for _, comment := range c.file.tree.Comments {
		if comment.Pos() >= d.End() && c.fset.Position(comment.Pos()).Line == line {
			return comment
		}
	}
	return nil
}

// cutComments cuts the comments that belong to no declaration, such as banners, if
// nothing is left of their section. A section ends at the next banner of its rank,
// or of a higher one: "====" is higher than "----". What stands above the first
// banner is the head of the file, and stays.
func (c *cutter) cutComments() {
	banner := regexp.MustCompile(`^// (====|----)`)
	rank := func(comment *ast.CommentGroup) string { return banner.FindString(comment.List[0].Text) }
	loose := slices.DeleteFunc(slices.Clone(c.file.tree.Comments), c.inDeclaration)
	isEmpty := false // the section has nothing left
	for i, comment := range loose {
		if rank(comment) != "" {
			end := c.file.tree.FileEnd
			for _, later := range slices.Backward(loose[i+1:]) {
				if rank(later) >= rank(comment) {
					end = later.Pos()
				}
			}
			isEmpty = !slices.ContainsFunc(c.live, func(p token.Pos) bool { return comment.Pos() < p && p < end })
		}
		if isEmpty {
			c.cut(comment)
		}
	}
}

func (c *cutter) inDeclaration(comment *ast.CommentGroup) bool {
	return slices.ContainsFunc(c.file.tree.Decls, func(d ast.Decl) bool {
		var doc *ast.CommentGroup
		switch d := d.(type) {
		case *ast.FuncDecl:
			doc = d.Doc
		case *ast.GenDecl:
			doc = d.Doc
		}
		return comment == doc || comment == c.behind(d) || d.Pos() <= comment.Pos() && comment.Pos() < d.End()
	})
}

// cutImports cuts the imports that only what was cut has used.
func (c *cutter) cutImports() {
	used := map[*types.Package]bool{}
	ast.Inspect(c.file.tree, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			if name, ok := c.info.Uses[id].(*types.PkgName); ok && !c.isCut(id) {
				used[name.Imported()] = true
			}
		}
		return true
	})
	for _, spec := range c.file.tree.Imports {
		if imported := c.info.PkgNameOf(spec); imported != nil && !used[imported.Imported()] {
			c.cut(spec, spec.Doc, spec.Comment)
		}
	}
}

func (c *cutter) isCut(node ast.Node) bool {
	at := c.offset(node.Pos())
	return slices.ContainsFunc(c.edits, func(e edit) bool { return e.from <= at && at < e.to })
}

// ---- Where it comes from ----

// origin says what the head of each file says about the library.
type origin struct{ version, commit string }

func findOrigin(root string) origin {
	o := origin{version: "unknown", commit: "unknown"}
	if program, err := os.ReadFile(filepath.Join(root, "main.go")); err == nil {
		if version := regexp.MustCompile(`(?m)^const version = "(.*)"$`).FindSubmatch(program); version != nil {
			o.version = string(version[1])
		}
	}
	git := func(args ...string) (string, bool) {
		out, err := exec.Command("git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	if prefix, ok := git("rev-parse", "--show-prefix"); ok && prefix == "" { // not a folder in somebody else's repository
		if commit, ok := git("rev-parse", "--short=12", "HEAD"); ok {
			o.commit = commit
			if changes, _ := git("status", "--porcelain", "--", ":(glob)*.go"); changes != "" {
				o.commit += ", and changes that are in no commit"
			}
		}
	}
	return o
}

// head returns the head of a file whose other text is body.
func (l *library) head(name string, body []byte, o *options) string {
	var licence string
	for _, file := range l.files {
		if first, _, _ := strings.Cut(string(file.text), "\n"); file.name == name && strings.HasPrefix(first, "// SPDX-") {
			licence = first + "\n"
		}
	}
	return fmt.Sprintf("%s// %s of mcpwire %s, commit %s: what is needed of it.\n"+again+"%s %s\n// Sum of all below: %x\n\n",
		licence, name, l.origin.version, l.origin.commit, o.pkg, strings.Join(o.what, " "), sha256.Sum256(body))
}

const again = "// To write it again, in a checkout of mcpwire: go run ./testdata/take -to DIR -package "

var headPattern = regexp.MustCompile(`^(?://.*\n)+` + regexp.QuoteMeta(again) + `(\S+) (.+)\n// Sum of all below: ([0-9a-f]{64})\n\n`)

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
	body      []byte // without the head
	isChanged bool   // by somebody else
}

// openFolder reads the folder, and fills in what the command line leaves open.
func openFolder(o *options, root string) (*folder, error) {
	full, err := filepath.Abs(o.to)
	if err != nil {
		return nil, err
	}
	if module := moduleOf(full); module != "" && isSame(module, root) {
		return nil, fmt.Errorf("%s belongs to mcpwire itself: -to needs a folder of your own, with its full path if you use go run -C", full)
	}
	f := &folder{path: full, ours: map[string]*written{}, others: map[string]string{}}
	entries, err := os.ReadDir(full)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if path.Ext(entry.Name()) == ".go" {
			if err := f.add(entry.Name()); err != nil {
				return nil, err
			}
		}
	}
	return f, f.complete(o)
}

func isSame(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func (f *folder) add(name string) error {
	text, err := os.ReadFile(filepath.Join(f.path, name))
	if err != nil {
		return err
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")) // as Git may have it on Windows
	if head := headPattern.FindSubmatch(text); head != nil {
		body := text[len(head[0]):]
		isChanged := fmt.Sprintf("%x", sha256.Sum256(body)) != string(head[3])
		f.ours[name] = &written{string(head[1]), string(head[2]), body, isChanged}
		return nil
	}
	f.others[name] = ""
	if tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.PackageClauseOnly); err == nil && !strings.HasSuffix(name, "_test.go") {
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
			o.what = strings.Fields(w.what)
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
// what has changed. If there is a file that must not be touched, nothing is written.
func (f *folder) write(out io.Writer, l *library, texts map[string][]byte, o *options) error {
	var kept []error
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if _, ok := f.others[name]; ok {
			kept = append(kept, fmt.Errorf("%s was not written by take, and is kept", filepath.Join(f.path, name)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.ours)) {
		if f.ours[name].isChanged && !o.force {
			kept = append(kept, fmt.Errorf("%s was changed after take had written it, and is kept; -force overwrites it", filepath.Join(f.path, name)))
		}
	}
	if len(kept) > 0 {
		return errors.Join(append(kept, errors.New("nothing was written"))...)
	}
	if err := os.MkdirAll(f.path, 0o777); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, package %s:\n", f.path, o.pkg)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		body := texts[name]
		text := append([]byte(l.head(name, body, o)), body...)
		if err := os.WriteFile(filepath.Join(f.path, name), text, 0o666); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %d lines%s\n", name, bytes.Count(text, []byte("\n")), f.changes(name, body))
	}
	for _, name := range slices.Sorted(maps.Keys(f.ours)) {
		if texts[name] == nil {
			if err := os.Remove(filepath.Join(f.path, name)); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s: removed, nothing of it is needed any more\n", name)
		}
	}
	return nil
}

// changes says what is new in a file since take wrote it last.
func (f *folder) changes(name string, body []byte) string {
	old := f.ours[name]
	if old == nil {
		return ", new"
	}
	if bytes.Equal(old.body, body) {
		return ", as before"
	}
	before, after := map[string]string{}, map[string]string{}
	for _, d := range declarations(old.body) {
		before[d.name] = d.text
	}
	for _, d := range declarations(body) {
		after[d.name] = d.text
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		switch was, is := before[name], after[name]; {
		case was == "":
			lines.WriteString("\n  + " + name)
		case is == "":
			lines.WriteString("\n  - " + name)
		case was != is:
			lines.WriteString("\n  ~ " + name)
		}
	}
	return ", changed (+ new, - gone, ~ changed):" + lines.String()
}

// ---- What a file holds ----

// declaration is a function, a method, a type, a var or a const, with its comment.
type declaration struct{ name, text string }

// declarations returns what a file declares, in its order. The file may be one that
// somebody has broken: then it is what can be read.
func declarations(text []byte) (all []declaration) {
	fset := token.NewFileSet()
	tree, _ := parser.ParseFile(fset, "", text, parser.ParseComments|parser.SkipObjectResolution)
	add := func(name string, node ast.Node, doc *ast.CommentGroup) {
		from := node.Pos()
		if doc != nil {
			from = doc.Pos()
		}
		all = append(all, declaration{name, string(text[fset.Position(from).Offset:fset.Position(node.End()).Offset])})
	}
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name.Name, d, d.Doc)
			} else {
				add(receiver(d)+"."+d.Name.Name, d, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name.Name, spec, cmp.Or(spec.Doc, d.Doc))
				case *ast.ValueSpec:
					add(spec.Names[0].Name, spec, spec.Doc)
				}
			}
		}
	}
	return all
}

// linesOfCode counts the lines that hold more than a comment.
func linesOfCode(text []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0) // comments are skipped
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && literal == "\n" { // the end of a line
			continue
		}
		for i := range strings.Count(literal, "\n") + 1 { // a string may have several lines
			lines[file.Line(pos)+i] = true
		}
	}
}
