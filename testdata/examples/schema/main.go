// SPDX-License-Identifier: 0BSD

// A tool whose schema is made from the struct of its arguments. Tags describe an argument,
// list its values, and bound it, and the server checks by the same tags. A field may be a text,
// a number, a bool, a time.Time, or a slice or a map of these. A pointer is for an argument that
// may be missing. addTool panics with a message about any other field, such as a struct in the
// struct: nothing would check that its members are there. The package mcp is a copy of
// jsonrpc.go, stdio.go and session.go: see "Copy it" in README.md of mcpwire.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/mine/mcp"
)

type forecastArguments struct {
	City string   `json:"city" doc:"The name of a city."`
	Unit *string  `json:"unit,omitempty" enum:"celsius,fahrenheit"`
	Days int      `json:"days" min:"1" max:"14"`
	Tags []string `json:"tags,omitempty"`
}

func forecast(ctx context.Context, x *mcp.Exchange, args forecastArguments) (any, error) {
	unit := "celsius"
	if args.Unit != nil {
		unit = *args.Unit
	}
	return fmt.Sprintf("%s, %d days, in %s: sun", args.City, args.Days, unit), nil
}

func main() {
	server := &mcp.Server{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	addTool(server, mcp.Tool{Name: "forecast", Description: "Forecasts the weather."}, forecast)
	conn := mcp.StdioConn(0)
	os.Stdout = os.Stderr // from here on, a fmt.Println of a tool does not spoil the messages
	if err := mcp.Serve(context.Background(), conn, server, slog.Default()); err != nil {
		log.Fatal(err)
	}
}

// addTool adds a tool with the schema of A, and checks the arguments before it calls run.
func addTool[A any](server *mcp.Server, tool mcp.Tool, run func(context.Context, *mcp.Exchange, A) (any, error)) {
	schema, err := json.Marshal(schemaOf(reflect.TypeFor[A]()))
	if err != nil {
		panic(err)
	}
	tool.InputSchema = schema
	mcp.AddTool(server, tool, func(ctx context.Context, x *mcp.Exchange, args A) (any, error) {
		if err := check(reflect.ValueOf(args)); err != nil {
			return nil, err // the model reads it
		}
		return run(ctx, x, args)
	})
}

// schemaOf returns the JSON Schema of a struct of arguments.
func schemaOf(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			panic(field.Name + " has no name in JSON")
		}
		property, ok := schemaOfValue(field.Type)
		if !ok {
			panic(fmt.Sprintf("%s: there is no schema for %v: see the head of this file", field.Name, field.Type))
		}
		if doc, ok := field.Tag.Lookup("doc"); ok {
			property["description"] = doc
		}
		if values, ok := enum(field); ok {
			property["enum"] = values
		}
		if least, ok := bound(field, "min"); ok {
			property["minimum"] = least
		}
		if most, ok := bound(field, "max"); ok {
			property["maximum"] = most
		}
		properties[name] = property
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// schemaOfValue returns the JSON Schema of a value; false: there is none.
func schemaOfValue(t reflect.Type) (schema map[string]any, ok bool) {
	if t == reflect.TypeFor[time.Time]() {
		return map[string]any{"type": "string", "format": "date-time"}, true
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOfValue(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}, true
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}, true
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}, true
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, true
	case reflect.Slice:
		items, ok := schemaOfValue(t.Elem())
		return map[string]any{"type": "array", "items": items}, ok
	case reflect.Map:
		values, ok := schemaOfValue(t.Elem())
		return map[string]any{"type": "object", "additionalProperties": values}, ok && t.Key().Kind() == reflect.String
	}
	return nil, false
}

// enum reads the tag enum, which is for strings.
func enum(field reflect.StructField) (values []string, ok bool) {
	text, ok := field.Tag.Lookup("enum")
	if !ok {
		return nil, false
	}
	if restricted(field).Kind() != reflect.String {
		panic(field.Name + ": the tag enum needs a string")
	}
	return strings.Split(text, ","), true
}

// bound reads the tag min or max, which is for signed integers.
func bound(field reflect.StructField, tag string) (n int64, ok bool) {
	text, ok := field.Tag.Lookup(tag)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !reflect.Zero(restricted(field)).CanInt() {
		panic(fmt.Sprintf("%s: the tag %s needs a number, and a field with a signed integer", field.Name, tag))
	}
	return n, true
}

// restricted returns the type of the values of a field whose tags restrict them. If the
// field is optional, it must be a pointer: so a zero that was sent is checked, and a zero
// that was not sent is not.
func restricted(field reflect.StructField) reflect.Type {
	if field.Type.Kind() == reflect.Pointer {
		return field.Type.Elem()
	}
	if strings.Contains(field.Tag.Get("json"), ",omit") {
		panic(field.Name + ": an optional field with enum, min or max must be a pointer")
	}
	return field.Type
}

// check compares the fields of a struct with their tags.
func check(arguments reflect.Value) error {
	for field, value := range arguments.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				continue // it was not sent
			}
			value = value.Elem()
		}
		if values, ok := enum(field); ok && !slices.Contains(values, value.String()) {
			return fmt.Errorf("'%s' must be one of %s", name, strings.Join(values, ", "))
		}
		if least, ok := bound(field, "min"); ok && value.Int() < least {
			return fmt.Errorf("'%s' must be at least %d", name, least)
		}
		if most, ok := bound(field, "max"); ok && value.Int() > most {
			return fmt.Errorf("'%s' must be at most %d", name, most)
		}
	}
	return nil
}
