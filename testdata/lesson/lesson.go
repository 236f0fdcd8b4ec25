// SPDX-License-Identifier: 0BSD

// Package lesson reads and plays the lessons of the course, for the tests of the small programs beside them.
package lesson

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Section is a part of a lesson, under a line such as "-- client A --".
type Section struct {
	Who    string // such as client, server, note
	Letter string // of the request over HTTP; "": it has none
	Text   string
}

var heading = regexp.MustCompile(`(?m)^-- (client|server|note|handshake|by hand) ?([^\n]*?) --\n`)

// Sections returns the sections of a lesson. Behind the word handshake, Letter is the rest of the line.
func Sections(t *testing.T, file string) (list []Section) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := heading.FindAllStringSubmatchIndex(string(text), -1)
	for i, p := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		list = append(list, Section{string(text[p[2]:p[3]]), string(text[p[4]:p[5]]), string(text[p[1]:end])})
	}
	return list
}

// HTTP takes a section over HTTP apart: its first line, its header, and its body.
func (s Section) HTTP() (first string, header http.Header, body string) {
	head, body, _ := strings.Cut(s.Text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	header = http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	return lines[0], header, body
}

// Values reads one JSON value from each line, and leaves out the members with the names that are missing, on each level.
func Values(t *testing.T, lines string, missing []string) (list []any) {
	for line := range strings.Lines(lines) {
		var value any
		if err := json.Unmarshal([]byte(line), &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, without(value, missing))
	}
	return list
}

func without(value any, missing []string) any {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			without(element, missing)
		}
	case map[string]any:
		for _, name := range missing {
			delete(value, name)
		}
		for _, member := range value {
			without(member, missing)
		}
	}
	return value
}
