// SPDX-License-Identifier: 0BSD

// A tool whose schema is made from the struct of its arguments, so that the two cannot
// differ. Tags describe an argument, list its values, and bound it. The server checks
// by the same tags. It needs:
//
//	go run ./testdata/take -to ../mine/mcp stdio-server
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"example.com/mine/mcp"
)

type forecastArguments struct {
	City string   `json:"city" doc:"The name of a city."`
	Unit string   `json:"unit,omitempty" enum:"celsius,fahrenheit"`
	Days int      `json:"days" min:"1" max:"14"`
	Tags []string `json:"tags,omitempty"`
}

func forecast(ctx context.Context, x *mcp.Exchange, args forecastArguments) (any, error) {
	return fmt.Sprintf("%s, %d days, in %s: sun", args.City, args.Days, cmp.Or(args.Unit, "celsius")), nil
}

func main() {
	server := &mcp.Server{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	addTool(server, mcp.Tool{Name: "forecast", Description: "Forecasts the weather."}, forecast)
	if err := mcp.Serve(context.Background(), mcp.StdioConn(0), server, slog.Default()); err != nil {
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

// schemaOf returns the JSON Schema of a type. It knows what JSON has, but no type that
// contains itself or encodes itself.
func schemaOf(t reflect.Type) map[string]any {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		return schemaOfStruct(t)
	}
	panic(fmt.Sprintf("no schema for %v", t))
}

func schemaOfStruct(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		property := schemaOf(field.Type)
		if doc, ok := field.Tag.Lookup("doc"); ok {
			property["description"] = doc
		}
		if values, ok := field.Tag.Lookup("enum"); ok {
			property["enum"] = strings.Split(values, ",")
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

// bound reads the tag min or max, which is for integers.
func bound(field reflect.StructField, tag string) (n int64, ok bool) {
	text, ok := field.Tag.Lookup(tag)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !reflect.Zero(field.Type).CanInt() {
		panic(fmt.Sprintf("%s: the tag %s needs an integer", field.Name, tag))
	}
	return n, true
}

// check compares the fields of a struct with their tags. A field with omitempty that is
// zero was not sent.
func check(arguments reflect.Value) error {
	for field, value := range arguments.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if value.IsZero() && strings.Contains(options, "omit") {
			continue
		}
		if values, ok := field.Tag.Lookup("enum"); ok && !slices.Contains(strings.Split(values, ","), value.String()) {
			return fmt.Errorf("'%s' must be one of %s", name, values)
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
