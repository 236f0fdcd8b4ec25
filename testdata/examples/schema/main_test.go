// SPDX-License-Identifier: 0BSD

package main

import (
	"reflect"
	"testing"
)

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
