// Copywire copies the five files of the library into the folder wire, as
// package wire. It changes the package clause and nothing else, as everybody
// does who copies them. It runs in testdata/interop:
//
//	go run ./copywire          copy the files
//	go run ./copywire -check   report whether the copy is up to date
//
// The copy is not committed, and what imports it does not compile without it.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
)

// copied is a file beside the copies. wire/doc.go does not compile without it.
const copied = "// Made by go run ./copywire, as the files beside it.\n\npackage wire\n\nconst goRunCopywire = true\n"

var packageClause = regexp.MustCompile(`(?m)^package main$`)

func main() {
	log.SetFlags(0)
	check := flag.Bool("check", false, "report whether the copy is up to date, and write nothing")
	flag.Parse()
	if err := run(*check); err != nil {
		log.Fatal(err)
	}
}

func run(check bool) error {
	files := map[string][]byte{"copied.go": []byte(copied)}
	for _, name := range []string{"jsonrpc.go", "stdio.go", "sse.go", "session.go", "http.go"} {
		source, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			return fmt.Errorf("run this in testdata/interop: %w", err)
		}
		clause := packageClause.FindIndex(source)
		if clause == nil {
			return fmt.Errorf("%s: no package clause", name)
		}
		files[name] = append([]byte{}, source[:clause[0]]...)
		files[name] = append(files[name], "package wire"...)
		files[name] = append(files[name], source[clause[1]:]...)
	}
	for name, source := range files {
		path := filepath.Join("wire", name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, source) {
			continue
		}
		if check {
			return fmt.Errorf("testdata/interop/%s is not what the library is now: run go run ./copywire in testdata/interop first", filepath.ToSlash(path))
		}
		if err := os.WriteFile(path, source, 0o666); err != nil {
			return err
		}
	}
	return nil
}
