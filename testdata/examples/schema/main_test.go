// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"example.com/mine/mcp"
)

// The library reads each kind of value that has a schema.
func TestValues(t *testing.T) {
	type arguments struct {
		When   time.Time         `json:"when"`
		Size   uint32            `json:"size"`
		Share  float32           `json:"share"`
		Labels map[string]string `json:"labels"`
		Names  []string          `json:"names"`
		Until  *time.Time        `json:"until,omitempty"`
	}
	schema, err := json.Marshal(schemaOf(reflect.TypeFor[arguments]()))
	const want = `{"properties":{"labels":{"additionalProperties":{"type":"string"},"type":"object"},"names":{"items":{"type":"string"},"type":"array"},` +
		`"share":{"type":"number"},"size":{"minimum":0,"type":"integer"},"until":{"format":"date-time","type":"string"},` +
		`"when":{"format":"date-time","type":"string"}},"required":["when","size","share","labels","names"],"type":"object"}`
	if err != nil || string(schema) != want {
		t.Errorf("%v: %s", err, schema)
	}
	var args arguments
	err = mcp.Bind([]byte(`{"when":"2026-07-28T12:00:00Z","size":3,"share":0.5,"labels":{"a":"b"},"names":["c"]}`), &args)
	if err != nil || args.When.Year() != 2026 || args.Size != 3 || args.Share != 0.5 || args.Labels["a"] != "b" || args.Names[0] != "c" {
		t.Errorf("%+v: %v", args, err)
	}
	if err := mcp.Bind([]byte(`{"when":"tomorrow","size":3,"share":0.5,"labels":{},"names":[]}`), &args); err == nil {
		t.Error("a time that is none is accepted")
	}
}

// What the schema forbids is refused, and nothing else.
func TestCheck(t *testing.T) {
	unit := func(name string) *string { return &name }
	for _, test := range []struct {
		args forecastArguments
		want string
	}{
		{forecastArguments{Days: 1}, ""},
		{forecastArguments{Days: 14, Unit: unit("fahrenheit")}, ""},
		{forecastArguments{Days: 1, Unit: unit("kelvin")}, "'unit' must be one of celsius, fahrenheit"},
		{forecastArguments{Days: 1, Unit: unit("")}, "'unit' must be one of celsius, fahrenheit"},
		{forecastArguments{Days: 0}, "'days' must be at least 1"},
		{forecastArguments{Days: 15}, "'days' must be at most 14"},
	} {
		got := ""
		if err := check(reflect.ValueOf(test.args)); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test.args, got, test.want)
		}
	}
}

// A struct that could not be checked has no schema.
func TestNoSchema(t *testing.T) {
	type point struct {
		X int `json:"x" min:"0"`
	}
	for _, arguments := range []any{
		struct {
			Point point `json:"point"`
		}{},
		struct {
			Points []point `json:"points"`
		}{},
		struct {
			ByNumber map[int]string `json:"byNumber"`
		}{},
		struct {
			Bytes []byte `json:"bytes"`
		}{},
		struct {
			Any any `json:"any"`
		}{},
		struct {
			Unit string `json:"unit,omitempty" enum:"celsius"`
		}{},
		struct {
			Units []string `json:"units" enum:"celsius"`
		}{},
		struct {
			Days *int `json:"days,omitempty" min:"one"`
		}{},
		struct {
			Size float64 `json:"size" max:"10"`
		}{},
	} {
		func() {
			defer func() { _ = recover() }()
			t.Errorf("%T has a schema: %v", arguments, schemaOf(reflect.TypeOf(arguments)))
		}()
	}
}
