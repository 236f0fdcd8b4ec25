// SPDX-License-Identifier: 0BSD

package main

// What is needed by the wanted names: a walk from one unit of code to the units
// that it mentions.
//
//	Serve ──► ServeConn ──► Peer ──► Peer.log        (a field: it is needed because ServeConn mentions it)
//	                  └───► Conn   Error             (a type, and an interface that ServeConn mentions: error)
//	                                 └──► Error.Error  (so the method with which the type implements it is needed)
//
// A unit is a function, a method, a type, a field of a struct, a var, or a const.
// A type that is needed brings neither its methods nor its fields. These come one by
// one, with the first unit that mentions them: linters complain about fields that nothing
// uses. There are three exceptions, because
// no unit mentions what is called or read through an interface or by reflection:
//
//   - If a type implements an interface that a unit mentions, it brings the methods
//     of that interface.
//   - The standard library looks for some methods by itself, such as MarshalJSON.
//   - Embedded fields, and fields with a json tag, come with their struct.

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// calledByStandardLibrary are the methods that fmt, errors, encoding/json, log/slog
// and net/http look for in what they are given.
var calledByStandardLibrary = strings.Fields("Error String Is As Unwrap MarshalJSON UnmarshalJSON MarshalText UnmarshalText IsZero LogValue " +
	"ServeHTTP RoundTrip Flush")

// library is the source of the library, parsed and type-checked.
type library struct {
	version, commit string
	fset            *token.FileSet
	files           []*source
	info            *types.Info
	pkg             *types.Package
	std             types.Importer // of the standard library
	units           map[types.Object]*unit
	named           map[string]*unit // the same, by name
}

// source is one file of the library.
type source struct {
	name string
	text []byte
	tree *ast.File
}

// unit is the smallest piece of code that is taken or left.
type unit struct {
	name   string // such as Server, Server.Handle for a method, Server.tools for a field
	file   *source
	node   ast.Node // a FuncDecl, TypeSpec, ValueSpec or Field; or the GenDecl of constants that depend on their order
	object types.Object
}

// travel is the folder of the tests that travel with a copy.
const travel = "testdata/take/travel"

// load reads the library: all files of the module's folder but main.go, which is
// the demo, and the tests. The tests that travel are read as if they stood there.
func load(root string) (*library, error) {
	build.Default.CgoEnabled = false // the package net has parts in C; it is read without them, so no C compiler is needed
	l := &library{fset: token.NewFileSet(), units: map[types.Object]*unit{}, named: map[string]*unit{}}
	l.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{}}
	l.std = importer.ForCompiler(l.fset, "source", nil)
	l.version, l.commit = origin(root)
	var trees []*ast.File
	paths, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		return nil, err
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return filepath.Base(path) == "main.go" || isTest(path) })
	tests, err := filepath.Glob(filepath.Join(root, travel, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range append(paths, tests...) {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text = withoutCR(text)
		tree, err := parser.ParseFile(l.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		l.files, trees = append(l.files, &source{name, text, tree}), append(trees, tree)
	}
	if l.pkg, err = l.check(l.fset, trees, l.info); err != nil {
		return nil, fmt.Errorf("the library does not compile: %w", err)
	}
	for _, file := range l.files {
		for _, d := range file.tree.Decls {
			l.addUnits(file, d)
		}
	}
	return l, nil
}

// check type-checks files. They may be those of the library, or what is taken.
func (l *library) check(fset *token.FileSet, files []*ast.File, info *types.Info) (*types.Package, error) {
	return (&types.Config{Importer: l.std}).Check("mcpwire", fset, files, info)
}

// addUnits makes the units of one declaration.
func (l *library) addUnits(file *source, d ast.Decl) {
	add := func(name string, id *ast.Ident, node ast.Node) {
		u := &unit{name: name, file: file, node: node, object: l.info.Defs[id]}
		l.units[u.object], l.named[name] = u, u
	}
	withoutValue := func(s ast.Spec) bool { return s.(*ast.ValueSpec).Values == nil }
	for _, n := range names(d) {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST && slices.ContainsFunc(g.Specs, withoutValue) {
			add(n.name, n.id, d) // with iota: all of them, or none
			continue
		}
		add(n.name, n.id, n.node)
		if s := structOf(n.node); s != nil {
			for _, field := range s.Fields.List {
				for _, id := range field.Names {
					add(n.name+"."+id.Name, id, field)
				}
			}
		}
	}
}

// structOf returns the struct that a node declares; nil: it declares something else.
func structOf(node ast.Node) *ast.StructType {
	if spec, ok := node.(*ast.TypeSpec); ok {
		if s, ok := spec.Type.(*ast.StructType); ok {
			return s
		}
	}
	return nil
}

// declared is a function, a method, a type, a var or a const.
type declared struct {
	name string // that of a method begins with its type
	id   *ast.Ident
	node ast.Node          // a FuncDecl, TypeSpec or ValueSpec
	doc  *ast.CommentGroup // the comment above it, or nil
}

// names returns what a declaration declares.
func names(d ast.Decl) (all []declared) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil { // such as *Server, or Set[T]
			receiver, _, _ := strings.Cut(types.ExprString(d.Recv.List[0].Type), "[")
			name = strings.TrimPrefix(receiver, "*") + "." + name
		}
		return []declared{{name, d.Name, d, d.Doc}}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				all = append(all, declared{spec.Name.Name, spec.Name, spec, cmp.Or(spec.Doc, d.Doc)})
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					all = append(all, declared{id.Name, id, spec, spec.Doc})
				}
			}
		}
	}
	return all
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// exported returns all names that can be asked for.
func (l *library) exported() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(l.named)) {
		if isTest(l.named[name].file.name) {
			continue
		}
		outer, inner, isMember := strings.Cut(name, ".")
		_, isField := l.named[name].node.(*ast.Field)
		if token.IsExported(outer) && (!isMember || token.IsExported(inner) && !isField) {
			names = append(names, name)
		}
	}
	return names
}

// roots returns the units of sets and names.
func (l *library) roots(what []string) (roots []*unit, err error) {
	exported := l.exported()
	for _, name := range what {
		for _, name := range strings.Fields(cmp.Or(sets[name], name)) {
			before := len(roots)
			for _, known := range exported {
				if ok, _ := path.Match(name, known); ok { // Type.* matches all methods
					roots = append(roots, l.named[known])
				}
			}
			if len(roots) == before {
				return nil, l.unknown(name, exported)
			}
		}
	}
	return roots, nil
}

// unknown returns an error that says which names contain one that is not there.
func (l *library) unknown(name string, known []string) error {
	if u := l.named[name]; u != nil {
		if _, isField := u.node.(*ast.Field); isField {
			return fmt.Errorf("%s is a field: it comes with what uses it", name)
		}
		return fmt.Errorf("%s is not exported: name what uses it", name)
	}
	var near []string
	for _, k := range slices.Concat(slices.Sorted(maps.Keys(sets)), known) {
		if strings.Contains(strings.ToLower(k), strings.ToLower(name)) {
			near = append(near, k)
		}
	}
	if len(near) == 0 {
		return fmt.Errorf("there is no %s; take without WHAT says what there is", name)
	}
	return fmt.Errorf("there is no %s; is it one of these? %s", name, strings.Join(near, ", "))
}

// taken is what the roots need.
type taken struct {
	*library
	order      []*unit // in the order in which they were reached
	because    map[*unit]*reason
	imports    map[types.Object]bool // the imports of files that units mention
	interfaces []mention
	met        map[types.Type]bool // the types whose interfaces are known
}

// mention is an interface that a unit mentions.
type mention struct {
	of  *types.Interface
	how string // in words
}

// reason says why a unit is needed.
type reason struct {
	by  *unit  // not one of the library: it was asked for
	how string // in words
}

// reach returns what the roots need. Units that are nearer to the roots come first,
// so the reasons form the shortest chains.
func (l *library) reach(roots []*unit) *taken {
	t := &taken{library: l, because: map[*unit]*reason{}, imports: map[types.Object]bool{}, met: map[types.Type]bool{}}
	for _, u := range roots {
		t.need(u.object, &unit{name: "the command line"}, "asks for it")
	}
	for next := 0; next < len(t.order); next++ {
		t.read(t.order[next])
		if next == len(t.order)-1 { // now all interfaces are known that are mentioned so far
			for _, u := range t.order {
				t.needMethods(u)
			}
		}
	}
	return t
}

// withTests returns the same with each test that needs nothing else of the library,
// and how many tests these are.
func (t *taken) withTests(roots []*unit) (with *taken, tests int) {
	for _, name := range slices.Sorted(maps.Keys(t.named)) {
		u := t.named[name]
		if !isTest(u.file.name) || !strings.HasPrefix(name, "Test") {
			continue
		}
		needsMore := func(u *unit) bool { return !isTest(u.file.name) && t.because[u] == nil }
		if more := slices.Concat(roots, []*unit{u}); !slices.ContainsFunc(t.reach(more).order, needsMore) {
			roots, tests = more, tests+1
		}
	}
	return t.reach(roots), tests
}

// need takes an object, if the library has it. A method of a generic type is the
// same object for all its types.
func (t *taken) need(o types.Object, by *unit, how string) {
	switch generic := o.(type) {
	case *types.Func:
		o = generic.Origin()
	case *types.Var:
		o = generic.Origin()
	}
	if u := t.units[o]; u != nil && t.because[u] == nil {
		t.because[u] = &reason{by, how}
		t.order = append(t.order, u)
	}
}

// read needs what a unit mentions.
func (t *taken) read(u *unit) {
	s := structOf(u.node)
	ast.Inspect(u.node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			isJSON := n.Tag != nil && strings.Contains(n.Tag.Value, `json:"`)
			if s != nil && slices.Contains(s.Fields.List, n) && len(n.Names) > 0 && !isJSON {
				return false // it comes with what mentions it
			}
		case *ast.Ident:
			t.need(t.info.Defs[n], u, "declares it, too") // each other name of the same unit, and the fields that come with a struct
			o := t.info.Uses[n]
			t.need(o, u, "mentions it")
			if _, ok := o.(*types.PkgName); ok {
				t.imports[o] = true
			}
		case *ast.CompositeLit:
			t.needFields(n, u)
		}
		if e, ok := n.(ast.Expr); ok {
			t.meet(u, t.info.TypeOf(e))
		}
		return true
	})
}

// needFields needs all fields of a struct that is filled without their names: T{1, 2}.
func (t *taken) needFields(filled *ast.CompositeLit, by *unit) {
	s, isStruct := t.info.TypeOf(filled).Underlying().(*types.Struct)
	if !isStruct || len(filled.Elts) == 0 {
		return
	}
	if _, named := filled.Elts[0].(*ast.KeyValueExpr); !named {
		for field := range s.Fields() {
			t.need(field, by, "fills the struct")
		}
	}
}

// meet remembers the interfaces in a type that a unit mentions: a value can only be
// converted to an interface where that interface is the type of an expression, of a
// parameter, of a result or of an element.
func (t *taken) meet(u *unit, in types.Type) {
	if in == nil || t.met[in] {
		return
	}
	t.met[in] = true
	if i, ok := in.Underlying().(*types.Interface); ok {
		if _, isParam := in.(*types.TypeParam); !isParam && i.IsMethodSet() && i.NumMethods() > 0 {
			how := fmt.Sprintf("%s, which %s mentions", types.TypeString(in, types.RelativeTo(t.pkg)), u.name)
			t.interfaces = append(t.interfaces, mention{i, how})
		}
		return
	}
	switch in := types.Unalias(in).(type) {
	case *types.Signature:
		t.meet(u, in.Params())
		t.meet(u, in.Results())
	case *types.Tuple:
		for v := range in.Variables() {
			t.meet(u, v.Type())
		}
	case *types.Map:
		t.meet(u, in.Key())
		t.meet(u, in.Elem())
	case interface{ Elem() types.Type }: // a slice, an array, a pointer, a channel
		t.meet(u, in.Elem())
	}
}

// needMethods needs the methods of a type that are called through an interface.
func (t *taken) needMethods(u *unit) {
	if _, isType := u.object.(*types.TypeName); !isType || types.IsInterface(u.object.Type()) {
		return
	}
	pointer := types.NewPointer(u.object.Type())
	need := func(method, how string) {
		o, _, _ := types.LookupFieldOrMethod(pointer, true, t.pkg, method)
		if _, isFunc := o.(*types.Func); isFunc {
			t.need(o, u, how)
		}
	}
	for _, method := range calledByStandardLibrary {
		need(method, "is its type, and the standard library may call it")
	}
	for _, mention := range t.interfaces {
		if types.Implements(pointer, mention.of) {
			for method := range mention.of.Methods() {
				need(method.Name(), "is its type, and implements "+mention.how)
			}
		}
	}
}

// explain prints the chain from what was asked for to a name.
func (t *taken) explain(out io.Writer, name string) error {
	u := t.named[name]
	if u == nil {
		return t.unknown(name, slices.Sorted(maps.Keys(t.named)))
	}
	if t.because[u] == nil {
		fmt.Fprintf(out, "%s is not taken\n", name)
		return nil
	}
	for why := t.because[u]; why != nil; u, why = why.by, t.because[why.by] {
		fmt.Fprintf(out, "%s (%s)\n    %s %s\n", u.name, t.fset.Position(u.object.Pos()), why.by.name, why.how)
	}
	return nil
}
