package library

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"interop/wire" // go run ./copywire
)

// bound has a field of each kind that Bind stores in a way of its own.
type bound struct {
	S string      `json:"s,omitempty"`
	I int8        `json:"i,omitempty"`
	U uint16      `json:"u,omitempty"`
	F float64     `json:"f,omitempty"`
	B bool        `json:"b,omitempty"`
	P *string     `json:"p,omitempty"`
	L []string    `json:"l,omitempty"`
	O boundInner  `json:"o,omitempty"`
	Q *boundInner `json:"q,omitempty"`
	A []boundItem `json:"a,omitempty"`
}

type boundInner struct {
	X string `json:"x,omitempty"`
	Y *int64 `json:"y,omitempty"`
}

type boundItem struct {
	Z string `json:"z"`
}

// exactly returns a value with only those members that bound and its parts have under exactly these names, and without null.
func exactly(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if value == nil || len(name) != 1 || !strings.Contains("siufbploqaxyz", name) {
				delete(v, name)
			} else {
				v[name] = exactly(value)
			}
		}
	case []any:
		for i := range v {
			v[i] = exactly(v[i])
		}
	}
	return v
}

// FuzzBind compares Bind with encoding/json. Where names are exact, appear once, and are not null, the two agree about every value, but for an
// integer that is written as 3.0 or 3e0, which only Bind takes.
func FuzzBind(f *testing.F) {
	for _, seed := range []string{
		`{"s":"a\u0061\n","i":-128,"u":65535,"f":1.5e3,"b":true,"p":"","l":["x",null],"o":{"x":"y","y":9007199254740993},"q":{},"a":[{"z":"1"},{"z":"2"}]}`,
		`{"i":3.0,"u":3e0,"o":{"y":1e15}}`, `{"s":1}`, `{"i":128}`, `{"u":-1}`, `{"a":[{}]}`, `{"a":[null]}`, `{"a":[{"z":"1"},7]}`,
		`{"s":"a","S":"b"}`, `{"s":"a","s":"b"}`, `{"\u0073":"a"}`, `{"o":{"x":"a","x":"b"}}`, `{"s":null,"o":null,"a":null}`, `{"p":"\ud800"}`, `{"a":[]}`, `{}`, `null`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) || !utf8.Valid(data) { // Decode has checked both
			return
		}
		var got bound
		err := wire.Bind(data, &got)
		fault, isBind := errors.AsType[*wire.BindError](err)
		if err != nil && (!isBind || fault.Error() == "") {
			t.Fatalf("not a *BindError with a text: %#v", err)
		}
		var tree any
		decoder := json.NewDecoder(strings.NewReader(string(data)))
		decoder.UseNumber()
		if err := decoder.Decode(&tree); err != nil {
			t.Fatal(err)
		}
		exact, encodeErr := json.Marshal(exactly(tree))
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}
		var want bound
		wantErr := json.Unmarshal(exact, &want)
		switch {
		case err == nil && wantErr == nil && !reflect.DeepEqual(got, want):
			t.Fatalf("Bind stores %#v, encoding/json %#v", got, want)
		case err == nil && wantErr != nil && !strings.Contains(wantErr.Error(), "number"):
			t.Fatalf("Bind takes what encoding/json refuses: %v", wantErr)
		case err != nil && wantErr == nil && !fault.Twice && !fault.Missing:
			t.Fatalf("Bind refuses what encoding/json takes: %v", err)
		}
	})
}
