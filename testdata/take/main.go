// SPDX-License-Identifier: 0BSD

// Take copies what a program needs of mcpwire, and nothing else, into a folder
// of that program. It runs in a checkout of mcpwire:
//
//	go run ./testdata/take -to ../mine/mcp stdio-server     what a server on stdio needs, as package mcp
//	go run ./testdata/take -to ../mine/mcp                  the same again, from the mcpwire of today
//	go run ./testdata/take -to DIR -test client             with a test beside the copy, for the CI of that program
//	go run ./testdata/take -list client SSEDialer           what would be taken, and how many lines it has
//	go run ./testdata/take -why Peer.Call jsonrpc           what keeps a name
//	go run ./testdata/take                                  what there is to take
//
// This file holds the command line. reach.go finds what the wanted names need.
// write.go cuts the rest out of the files, and writes them.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A set is a list of names that are taken together. A type brings its fields, and
// the methods that something taken or the standard library calls. Any other method
// has to be named, as Type.Method; Type.* stands for all exported ones.
var sets = map[string]string{
	"stdio-server": "Serve StdioConn Server AddTool TextContent ToolError Exchange.Progress",
	"http-server":  "StreamableHandler StreamableHandler.Close Sessions Guard AuthError Server AddTool TextContent ToolError Exchange.Progress",
	"client": "Client Client.Connect Client.Call Client.CallWithProgress Client.Server Client.Close HTTPDialer HTTPError WithHeader ListToolsResult CallToolParams " +
		"ToolResult ToolResult.Text ElicitParams ElicitResult",
	"jsonrpc": "ServeConn OpenConn Conn Pipe Decode Payload.Append HandlerFunc Bind Exchange.Bind Exchange.Call Exchange.Notify " +
		"Peer.Call Peer.Notify Peer.Close Peer.Context NewRequest NewResponse NumberID StringID InvalidParams MethodNotFound",
}

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:], os.Stdout, loadCheckout); err != nil && !errors.Is(err, flag.ErrHelp) {
		log.Fatal("take: ", err)
	}
}

// options is what the command line says.
type options struct {
	to, pkg, why string
	list, force  bool
	test         bool     // write tests, too
	what         []string // the sets and names
}

func readOptions(args []string, out io.Writer) (*options, error) {
	o := new(options)
	flags := flag.NewFlagSet("take", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.to, "to", "", "the `DIR` to write to. A relative one begins where take runs: with go run -C that is the checkout, so give the full path there")
	flags.StringVar(&o.pkg, "package", "", "the `NAME` of the package; without it, that of the other files in DIR, or the name of DIR")
	flags.BoolVar(&o.list, "list", false, "list what would be taken, with its lines and lines of code, and write nothing")
	flags.StringVar(&o.why, "why", "", "say what keeps `NAME`, and write nothing")
	flags.BoolVar(&o.test, "test", false, "write a test beside the copy: conversations in memory with what is taken")
	flags.BoolVar(&o.force, "force", false, "overwrite also the files that were changed after take had written them. Without it they are kept")
	flags.Usage = func() {
		fmt.Fprint(out, "usage: go run ./testdata/take [flags] WHAT...\n\nThe flags come first. WHAT is a set or an exported name; what an earlier run wrote, and this one does not need, is removed. Without WHAT, -to DIR repeats what wrote the files in DIR.\n\n")
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.what = strings.Fields(strings.Join(flags.Args(), " "))
	return o, nil
}

// run does what the command line says. A test gives it another library.
func run(args []string, out io.Writer, load func() (*library, error)) error {
	o, err := readOptions(args, out)
	if err != nil {
		return err
	}
	var target *folder
	if o.to != "" {
		if target, err = openFolder(o); err != nil {
			return err
		}
	}
	l, err := load()
	if err != nil {
		return err
	}
	if len(o.what) == 0 {
		if o.why != "" || o.list {
			return errors.New("-list and -why need WHAT: a set or a name")
		}
		l.printAll(out)
		return nil
	}
	taken, err := l.take(o)
	if err != nil {
		return err
	}
	if o.why != "" {
		return taken.explain(out, o.why)
	}
	o.pkg = cmp.Or(o.pkg, "mcp") // for -list without -to
	texts, err := taken.texts(o.pkg)
	switch {
	case err != nil:
		return err
	case o.list:
		l.printList(out, texts, o)
		return nil
	case target == nil:
		return errors.New("where to? Give -to DIR, or -list to see what would be taken")
	}
	return target.write(out, l, texts, o)
}

// take returns what the wanted names need, with tests if they are asked for.
func (l *library) take(o *options) (*taken, error) {
	roots, err := l.roots(o.what)
	if err != nil {
		return nil, err
	}
	t := l.reach(roots)
	if !o.test {
		return t, nil
	}
	t, tests := t.withTests(roots)
	if tests == 0 {
		return nil, errors.New("-test: there is no test that needs nothing else than what is taken; leave the flag out")
	}
	return t, nil
}

// loadCheckout loads the library that this program belongs to: its source lies two
// folders above that of the program.
func loadCheckout() (*library, error) {
	_, source, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(source), "..", "..")
	if _, err := os.Stat(filepath.Join(root, "jsonrpc.go")); err != nil {
		return nil, fmt.Errorf("the source of mcpwire is not here: use go run in a checkout of it, without -trimpath (%w)", err)
	}
	return load(root)
}

// printAll says what there is to take.
func (l *library) printAll(out io.Writer) {
	fmt.Fprintf(out, "usage: go run ./testdata/take [-to DIR] [-package NAME] [-test] [-list] [-why NAME] [-force] WHAT...\n\n")
	fmt.Fprintf(out, "WHAT is a set of declarations that are copied together:\n\n")
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		fmt.Fprintf(out, "  %-13s %s\n", set, sets[set])
	}
	fmt.Fprintf(out, "\nor an exported name. Type.* stands for all exported methods of a type:\n")
	for _, file := range l.files {
		if isTest(file.name) {
			continue
		}
		fmt.Fprintf(out, "\n  %s:\n  ", file.name)
		for _, name := range l.exported() {
			if l.named[name].file == file {
				fmt.Fprintf(out, " %s", name)
			}
		}
		fmt.Fprintln(out)
	}
}

// printList prints each file of texts with its lines and lines of code, and each
// declaration with its lines.
func (l *library) printList(out io.Writer, texts map[string][]byte, o *options) {
	lines, code := 0, 0
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		n := strings.Count(l.head(name, texts[name], o)+string(texts[name]), "\n")
		c := linesOfCode(texts[name])
		lines, code = lines+n, code+c
		fmt.Fprintf(out, "%s: %d lines, %d of code\n", name, n, c)
		for name, text := range declarations(texts[name]) {
			fmt.Fprintf(out, "  %5d  %s\n", strings.Count(text, "\n")+1, name)
		}
	}
	fmt.Fprintf(out, "total: %d lines, %d of code\n", lines, code)
}
