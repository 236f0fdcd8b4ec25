//go:build unix

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// These are the operators.
const (
	negate     = "negate"     // the condition of an if, a for, or a switch without a value is negated
	dropSide   = "drop-side"  // one side of && or || is dropped
	dropReturn = "drop-exit"  // the body of an if only returns, and is emptied
	double     = "double"     // a constant, or the limit of a comparison, is doubled
	shift      = "shift"      // < becomes <=, and > becomes >=
	dropLock   = "drop-lock"  // a Lock is left out, and the Unlocks that belong to it
	dropDefer  = "drop-defer" // a defer statement is left out; Unlock is dropLock's
	dropCall   = "drop-call"  // the call of a method without results is left out
	dropCase   = "drop-case"  // a case of a switch is taken out
	dropError  = "drop-error" // the error of a return becomes nil
)

var operatorNames = []string{negate, dropSide, dropReturn, double, shift, dropLock, dropDefer, dropCall, dropCase, dropError}

// edit replaces the bytes of a file from from to to.
type edit struct {
	from, to int
	text     string
}

// mutation is one change of one file.
type mutation struct {
	ID            string // file/function/operator/number
	File          string
	Operator      string
	Line          int
	Before, After string // the line
	edits         []edit // sorted, without overlap
}

// unchanged is the mutation that changes nothing.
var unchanged = &mutation{ID: "unchanged"}

// apply returns the source of the file with the mutation. All lines keep their
// numbers.
func (m *mutation) apply(source []byte) []byte {
	var out []byte
	end := 0
	for _, e := range m.edits {
		out = append(out, source[end:e.from]...)
		out = append(out, e.text...)
		end = e.to
	}
	return append(out, source[end:]...)
}

// library is the source of the library, with its types.
type library struct {
	fset    *token.FileSet
	sources map[string][]byte
	files   map[string]*ast.File
	info    *types.Info
}

// standardLibrary imports the packages that the library uses. It keeps them.
var standardLibrary = importer.Default()

// loadLibrary reads the five files in a folder.
func loadLibrary(dir string) (*library, error) {
	sources := make(map[string][]byte)
	for _, name := range libraryFiles {
		source, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("run this in testdata/interop: %w", err)
		}
		sources[name] = source
	}
	return newLibrary(sources)
}

// newLibrary parses files, and finds the types in them.
func newLibrary(sources map[string][]byte) (*library, error) {
	lib := &library{
		fset:    token.NewFileSet(),
		sources: sources,
		files:   make(map[string]*ast.File),
		info:    &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Selections: make(map[*ast.SelectorExpr]*types.Selection)},
	}
	for name, source := range sources {
		file, err := parser.ParseFile(lib.fset, name, source, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		lib.files[name] = file
	}
	return lib, lib.check(lib.files, lib.info)
}

// check finds the types in files. It returns the first error of the compiler.
func (lib *library) check(files map[string]*ast.File, info *types.Info) error {
	var sorted []*ast.File
	for _, name := range libraryFiles {
		if files[name] != nil {
			sorted = append(sorted, files[name])
		}
	}
	config := types.Config{Importer: standardLibrary}
	_, err := config.Check("main", lib.fset, sorted, info)
	return err
}

// compiles reports whether the library compiles with the mutation.
func (lib *library) compiles(m *mutation) bool {
	file, err := parser.ParseFile(lib.fset, m.File, m.apply(lib.sources[m.File]), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	files := make(map[string]*ast.File)
	for name := range lib.files {
		files[name] = lib.files[name]
	}
	files[m.File] = file
	return lib.check(files, nil) == nil
}

// candidates returns all mutations of a file, in the order of the source.
func (lib *library) candidates(name string) []*mutation {
	if lib.files[name] == nil {
		return nil // a test has fewer files
	}
	f := &finder{library: lib, name: name, counts: make(map[string]int)}
	for _, decl := range lib.files[name].Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Body != nil && decl.Name.Name != "String" {
				f.function = f.functionName(decl)
				f.locks(decl.Body)
				ast.Inspect(decl.Body, f.visit)
			}
		case *ast.GenDecl:
			f.function = "const"
			f.visit(decl)
		}
	}
	return f.found
}

// finder finds the mutations of one file.
type finder struct {
	*library
	name     string
	function string         // that is visited
	counts   map[string]int // by function and operator
	found    []*mutation
}

// functionName returns the name of a function, or Type.Name for a method.
func (f *finder) functionName(decl *ast.FuncDecl) string {
	if decl.Recv == nil {
		return decl.Name.Name
	}
	receiver, _, _ := strings.Cut(strings.TrimPrefix(f.text(decl.Recv.List[0].Type), "*"), "[")
	return receiver + "." + decl.Name.Name
}

// visit finds the mutations at one node. It returns false if there is nothing to
// mutate below: output to the log is no rule.
func (f *finder) visit(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.ExprStmt:
		call, isCall := node.X.(*ast.CallExpr)
		if isCall && f.isLogged(node) {
			return false
		}
		if isCall && f.isPlainMethod(call) {
			f.leaveOut(dropCall, node)
		}
	case *ast.DeferStmt:
		if lockName(node.Call, f.text) == "" {
			f.leaveOut(dropDefer, node)
		}
	case *ast.IfStmt:
		if node.Else == nil && !slices.ContainsFunc(node.Body.List, func(s ast.Stmt) bool { return !f.isLogged(s) }) {
			return len(node.Body.List) == 0
		}
		f.condition(node.Cond)
		if len(node.Body.List) == 1 && node.Else == nil {
			if exit, ok := node.Body.List[0].(*ast.ReturnStmt); ok {
				f.leaveOut(dropReturn, exit)
			}
		}
	case *ast.ForStmt:
		if node.Cond != nil {
			f.condition(node.Cond)
		}
	case *ast.SwitchStmt:
		f.cases(node.Body, node.Tag == nil)
	case *ast.TypeSwitchStmt:
		f.cases(node.Body, false)
	case *ast.BinaryExpr:
		f.binary(node)
	case *ast.GenDecl:
		if node.Tok == token.CONST {
			f.constants(node)
		}
	case *ast.ReturnStmt:
		f.errorResult(node)
	}
	return true
}

// text returns the source of a node.
func (f *finder) text(node ast.Node) string {
	return string(f.sources[f.name][f.offset(node.Pos()):f.offset(node.End())])
}

func (f *finder) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }

// replace adds a mutation that replaces a node.
func (f *finder) replace(operator string, node ast.Node, text string) {
	f.add(operator, []edit{{f.offset(node.Pos()), f.offset(node.End()), text}})
}

// leaveOut adds a mutation that takes some statements out. Their lines stay, and
// are empty.
func (f *finder) leaveOut(operator string, statements ...ast.Node) {
	var edits []edit
	for _, s := range statements {
		edits = append(edits, edit{f.offset(s.Pos()), f.offset(s.End()), strings.Repeat("\n", strings.Count(f.text(s), "\n"))})
	}
	f.add(operator, edits)
}

func (f *finder) add(operator string, edits []edit) {
	key := f.name + "/" + f.function + "/" + operator
	f.counts[key]++
	source := f.sources[f.name]
	m := &mutation{ID: fmt.Sprintf("%s/%d", key, f.counts[key]), File: f.name, Operator: operator, edits: edits}
	m.Line = bytes.Count(source[:edits[0].from], []byte("\n")) + 1
	m.Before = strings.TrimSpace(strings.Split(string(source), "\n")[m.Line-1])
	m.After = strings.TrimSpace(strings.Split(string(m.apply(source)), "\n")[m.Line-1])
	f.found = append(f.found, m)
}

func (f *finder) condition(cond ast.Expr) {
	f.replace(negate, cond, "!("+f.text(cond)+")")
}

// cases takes out each case of a switch. In a switch without a value the cases
// are conditions.
func (f *finder) cases(body *ast.BlockStmt, areConditions bool) {
	for _, s := range body.List {
		clause := s.(*ast.CaseClause)
		f.leaveOut(dropCase, clause)
		if areConditions && len(clause.List) == 1 {
			f.condition(clause.List[0])
		}
	}
}

func (f *finder) binary(x *ast.BinaryExpr) {
	switch x.Op {
	case token.LAND, token.LOR:
		f.replace(dropSide, x, f.text(x.X))
		f.replace(dropSide, x, f.text(x.Y))
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		if x.Op == token.LSS || x.Op == token.GTR {
			at := f.offset(x.OpPos)
			f.add(shift, []edit{{at, at + 1, x.Op.String() + "="}})
		}
		if f.isLimit(x.Y) {
			f.replace(double, x.Y, "2*("+f.text(x.Y)+")")
		} else if f.isLimit(x.X) {
			f.replace(double, x.X, "2*("+f.text(x.X)+")")
		}
	}
}

var limitName = regexp.MustCompile(`^(max|Max|limit)`)

// isLimit reports whether one side of a comparison is a number that says how
// much is allowed: a constant that is not 0, or a name that begins with max.
func (f *finder) isLimit(x ast.Expr) bool {
	if value := f.info.Types[x].Value; value != nil {
		return (value.Kind() == constant.Int || value.Kind() == constant.Float) && constant.Sign(value) != 0
	}
	switch x := x.(type) {
	case *ast.Ident:
		return limitName.MatchString(x.Name)
	case *ast.SelectorExpr:
		return limitName.MatchString(x.Sel.Name)
	}
	return false
}

// constants doubles the constants that may be bounds: codes are negative, and
// what counts with iota is a name.
func (f *finder) constants(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		for _, x := range spec.(*ast.ValueSpec).Values {
			value := f.info.Types[x].Value
			if f.isLimit(x) && constant.Sign(value) > 0 && !strings.Contains(f.text(x), "iota") {
				f.replace(double, x, "2*("+f.text(x)+")")
			}
		}
	}
}

// errorResult replaces the error that a return ends with. A call that may do
// more than to make an error stays.
func (f *finder) errorResult(s *ast.ReturnStmt) {
	if len(s.Results) == 0 {
		return
	}
	last := s.Results[len(s.Results)-1]
	call, isCall := last.(*ast.CallExpr)
	if isCall && !slices.Contains([]string{"fmt.Errorf", "errors.New", "errors.Join"}, f.text(call.Fun)) {
		return
	}
	t := f.info.Types[last]
	failure := types.Universe.Lookup("error").Type().Underlying().(*types.Interface)
	if !t.IsNil() && t.Type != nil && types.Implements(t.Type, failure) {
		f.replace(dropError, last, "nil")
	}
}

// isPlainMethod reports whether a call is that of a method without results. The
// methods of locks have an operator of their own.
func (f *finder) isPlainMethod(call *ast.CallExpr) bool {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || lockName(call, f.text) != "" {
		return false
	}
	selection := f.info.Selections[selector]
	if selection == nil || selection.Kind() != types.MethodVal {
		return false
	}
	return selection.Type().(*types.Signature).Results().Len() == 0
}

// isLogged reports whether a statement only writes to the log.
func (f *finder) isLogged(s ast.Stmt) bool {
	statement, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.info.Types[selector.X].Type != nil && f.info.Types[selector.X].Type.String() == "*log/slog.Logger"
}

// lockName returns the name of the mutex that a call locks or unlocks, such as
// c.mu; "" if the call does neither.
func lockName(call *ast.CallExpr, text func(ast.Node) string) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock"}, selector.Sel.Name) {
		return ""
	}
	return text(selector.X)
}

// locks takes out each Lock of a function, and the Unlocks of the same mutex up
// to the next Lock. A function inside it is a function of its own.
func (f *finder) locks(body *ast.BlockStmt) {
	type lock struct {
		mutex      string
		isUnlock   bool
		statements []ast.Node
	}
	var calls []*lock
	ast.Inspect(body, func(node ast.Node) bool {
		var call *ast.CallExpr
		switch node := node.(type) {
		case *ast.FuncLit:
			f.locks(node.Body)
			return false
		case *ast.ExprStmt:
			call, _ = node.X.(*ast.CallExpr)
		case *ast.DeferStmt:
			call = node.Call
		}
		if call == nil || lockName(call, f.text) == "" {
			return true
		}
		isUnlock := strings.HasSuffix(call.Fun.(*ast.SelectorExpr).Sel.Name, "nlock")
		calls = append(calls, &lock{lockName(call, f.text), isUnlock, []ast.Node{node}})
		return false
	})
	for i, first := range calls {
		if first.isUnlock {
			continue
		}
		pair := first.statements
		for _, next := range calls[i+1:] {
			if next.mutex == first.mutex && !next.isUnlock {
				break
			}
			if next.mutex == first.mutex {
				pair = append(pair, next.statements...)
			}
		}
		f.leaveOut(dropLock, pair...)
	}
}
