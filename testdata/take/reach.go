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
// one, with the first unit that mentions them. There are three exceptions, because
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
	"path/filepath"
	"slices"
	"strings"
)

// calledByStandardLibrary are the methods that fmt, errors, encoding/json, log/slog
// and net/http look for in what they are given.
var calledByStandardLibrary = strings.Fields("Error String Is As Unwrap MarshalJSON UnmarshalJSON MarshalText UnmarshalText LogValue " +
	"ServeHTTP RoundTrip Flush")

// library is the source of the library, parsed and type-checked.
type library struct {
	origin origin
	fset   *token.FileSet
	files  []*source
	info   *types.Info
	pkg    *types.Package
	std    types.Importer // of the standard library

	units map[types.Object]*unit
	named map[string]*unit // the same, by name
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
	fields []*unit // of a struct
}

// load reads the library: all files of the module's folder but main.go, which is
// the demo, and the tests.
func load(root string) (*library, error) {
	build.Default.CgoEnabled = false // the package net has parts in C; it is read without them, so no C compiler is needed
	l := &library{fset: token.NewFileSet(), units: map[types.Object]*unit{}, named: map[string]*unit{}}
	l.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{}}
	l.std = importer.ForCompiler(l.fset, "source", nil)
	l.origin = findOrigin(root)
	paths, err := filepath.Glob(filepath.Join(root, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if name == "main.go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		tree, err := parser.ParseFile(l.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		l.files = append(l.files, &source{name, text, tree})
	}
	if l.pkg, err = l.check(l.fset, l.trees(), l.info); err != nil {
		return nil, fmt.Errorf("the library does not compile: %w", err)
	}
	for _, file := range l.files {
		for _, d := range file.tree.Decls {
			l.addUnits(file, d)
		}
	}
	return l, nil
}

func (l *library) trees() (trees []*ast.File) {
	for _, file := range l.files {
		trees = append(trees, file.tree)
	}
	return trees
}

// check type-checks files. They may be those of the library, or what is taken.
func (l *library) check(fset *token.FileSet, files []*ast.File, info *types.Info) (*types.Package, error) {
	return (&types.Config{Importer: l.std}).Check("mcpwire", fset, files, info)
}

// addUnits makes the units of one declaration.
func (l *library) addUnits(file *source, d ast.Decl) {
	add := func(name string, id *ast.Ident, node ast.Node) *unit {
		u := &unit{name: name, file: file, node: node, object: l.info.Defs[id]}
		l.units[u.object], l.named[name] = u, u
		return u
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			name = receiver(d) + "." + name
		}
		add(name, d.Name, d)
	case *ast.GenDecl:
		inOrder := d.Tok == token.CONST && slices.ContainsFunc(d.Specs, func(s ast.Spec) bool { return s.(*ast.ValueSpec).Values == nil })
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, id := range spec.Names {
					if inOrder { // with iota: all of them, or none
						add(id.Name, id, d)
					} else {
						add(id.Name, id, spec)
					}
				}
			case *ast.TypeSpec:
				u := add(spec.Name.Name, spec.Name, spec)
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, field := range s.Fields.List {
						for _, id := range field.Names {
							u.fields = append(u.fields, add(u.name+"."+id.Name, id, field))
						}
					}
				}
			}
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(d *ast.FuncDecl) string {
	t := d.Recv.List[0].Type
	for {
		switch inner := t.(type) {
		case *ast.StarExpr:
			t = inner.X
		case *ast.IndexExpr:
			t = inner.X
		case *ast.IndexListExpr:
			t = inner.X
		default:
			return t.(*ast.Ident).Name
		}
	}
}

// exported returns all names that can be asked for.
func (l *library) exported() (names []string) {
	for _, name := range slices.Sorted(maps.Keys(l.named)) {
		outer, inner, isMember := strings.Cut(name, ".")
		_, isField := l.named[name].node.(*ast.Field)
		if token.IsExported(outer) && (!isMember || token.IsExported(inner) && !isField) {
			names = append(names, name)
		}
	}
	return names
}

// roots returns the units of rows and names.
func (l *library) roots(what []string) (roots []*unit, err error) {
	exported := l.exported()
	for _, name := range what {
		for _, name := range strings.Fields(cmp.Or(rows[name], name)) {
			typeName, all := strings.CutSuffix(name, ".*")
			if all {
				for _, method := range exported {
					if strings.HasPrefix(method, typeName+".") {
						roots = append(roots, l.named[method])
					}
				}
			}
			if !slices.Contains(exported, typeName) {
				return nil, l.unknown(name, exported)
			}
			roots = append(roots, l.named[typeName])
		}
	}
	return roots, nil
}

// unknown returns an error that says which names are near to one that is not
// there: those that it is a part of, and those that differ in a letter or two.
func (l *library) unknown(name string, known []string) error {
	if u := l.named[name]; u != nil {
		if _, isField := u.node.(*ast.Field); isField {
			return fmt.Errorf("%s is a field: it comes with what uses it", name)
		}
		return fmt.Errorf("%s is not exported: name what uses it", name)
	}
	var near []string
	wanted := strings.ToLower(name)
	for _, k := range slices.Concat(slices.Sorted(maps.Keys(rows)), known) {
		lower := strings.ToLower(k)
		_, method, _ := strings.Cut(lower, ".")
		if strings.Contains(lower, wanted) || distance(lower, wanted) <= 2 || method != "" && distance(method, wanted) <= 1 {
			near = append(near, k)
		}
	}
	if len(near) == 0 {
		return fmt.Errorf("there is no %s; take without WHAT says what there is", name)
	}
	return fmt.Errorf("there is no %s; is it one of these? %s", name, strings.Join(near[:min(len(near), 12)], ", "))
}

// distance returns how many letters have to be added, removed or replaced to make b
// of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // from the letters of a so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// taken is what the roots need.
type taken struct {
	*library
	because    map[*unit]reason
	queue      []*unit // that were reached, and not yet read
	order      []*unit // that were read
	interfaces []mention
	met        map[types.Type]bool // the types whose interfaces are known
}

// mention is an interface, and the first unit that mentions it.
type mention struct {
	of *types.Interface
	in types.Type // with its name, if it has one
	by *unit
}

// reason says why a unit is needed.
type reason struct {
	by  *unit  // nil: it was asked for
	how string // in words
}

// reach returns what the roots need. Units that are nearer to the roots come first,
// so the reasons form the shortest chains.
func (l *library) reach(roots []*unit) *taken {
	t := &taken{library: l, because: map[*unit]reason{}, met: map[types.Type]bool{}}
	for _, u := range roots {
		t.need(u, reason{how: "was asked for"})
	}
	for len(t.queue) > 0 {
		u := t.queue[0]
		t.queue = t.queue[1:]
		t.order = append(t.order, u)
		t.read(u)
		if len(t.queue) == 0 { // now all interfaces are known that are mentioned so far
			for _, u := range t.order {
				t.needMethods(u)
			}
		}
	}
	return t
}

func (t *taken) has(u *unit) bool {
	_, ok := t.because[u]
	return ok
}

func (t *taken) need(u *unit, why reason) {
	if u != nil && !t.has(u) {
		t.because[u] = why
		t.queue = append(t.queue, u)
	}
}

// needObject is need for an object. A method of a generic type is the same object
// for all its types.
func (t *taken) needObject(o types.Object, why reason) {
	switch generic := o.(type) {
	case *types.Func:
		o = generic.Origin()
	case *types.Var:
		o = generic.Origin()
	}
	t.need(t.units[o], why)
}

// read needs what a unit mentions.
func (t *taken) read(u *unit) {
	why := reason{u, "mentions it"}
	switch node := u.node.(type) {
	case *ast.Field:
		t.readNode(u, node.Type, why)
	case *ast.TypeSpec:
		s, ok := node.Type.(*ast.StructType)
		if !ok {
			t.readNode(u, node, why)
			return
		}
		if node.TypeParams != nil {
			t.readNode(u, node.TypeParams, why)
		}
		for _, field := range s.Fields.List {
			if len(field.Names) == 0 {
				t.readNode(u, field.Type, reason{u, "embeds it"})
			}
		}
		for _, field := range u.fields {
			tag := field.node.(*ast.Field).Tag
			if field.object.Name() == "_" || tag != nil && strings.Contains(tag.Value, `json:"`) {
				t.need(field, reason{u, "has it as a field"})
			}
		}
	default:
		t.readNode(u, node, why)
	}
}

func (t *taken) readNode(u *unit, node ast.Node, why reason) {
	ast.Inspect(node, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			t.needObject(t.info.ObjectOf(n), why) // also each other name that the same unit declares
		case *ast.CompositeLit:
			if len(n.Elts) > 0 {
				if _, keyed := n.Elts[0].(*ast.KeyValueExpr); !keyed { // T{1, 2} has a value for each field
					t.needFields(t.info.TypeOf(n), reason{u, "fills all fields"})
				}
			}
		case *ast.CallExpr:
			if t.info.Types[n.Fun].IsType() { // T(x) needs two structs with the same fields
				t.needFields(t.info.TypeOf(n.Fun), reason{u, "converts it"})
				t.needFields(t.info.TypeOf(n.Args[0]), reason{u, "converts it"})
			}
		}
		if e, ok := n.(ast.Expr); ok {
			t.meet(u, t.info.TypeOf(e))
		}
		return true
	})
}

// needFields needs all fields of a struct.
func (t *taken) needFields(of types.Type, why reason) {
	if s, ok := of.Underlying().(*types.Struct); ok {
		for field := range s.Fields() {
			t.needObject(field, why)
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
			t.interfaces = append(t.interfaces, mention{i, in, u})
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
	method := func(name string, how string) {
		o, _, _ := types.LookupFieldOrMethod(pointer, true, t.pkg, name)
		if f, ok := o.(*types.Func); ok {
			t.needObject(f, reason{u, how})
		}
	}
	for _, name := range calledByStandardLibrary {
		method(name, "is its type, and the standard library may call it")
	}
	for _, mention := range t.interfaces {
		if types.Implements(pointer, mention.of) {
			how := fmt.Sprintf("is its type, and implements %s, which %s mentions", types.TypeString(mention.in, types.RelativeTo(t.pkg)), mention.by.name)
			for m := range mention.of.Methods() {
				method(m.Name(), how)
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
	if !t.has(u) {
		fmt.Fprintf(out, "%s is not taken\n", name)
		return nil
	}
	for u != nil {
		why := t.because[u]
		fmt.Fprintf(out, "%s (%s)\n", u.name, t.fset.Position(u.object.Pos()))
		if why.by == nil {
			fmt.Fprintf(out, "    %s\n", why.how)
		} else {
			fmt.Fprintf(out, "    %s %s:\n", why.by.name, why.how)
		}
		u = why.by
	}
	return nil
}
