package library

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
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

// boundNames are the names of these fields.
const boundNames = "siufbploqa"

type boundInner struct {
	X string `json:"x,omitempty"`
	Y *int64 `json:"y,omitempty"`
}

type boundItem struct {
	Z string `json:"z"`
}

// exactly returns an object with only those members that bound has under exactly these names, and without null. An integer that is written
// as 3.0 or 3e0, which Bind takes and json.Unmarshal does not, is written as 3.
func exactly(members map[string]json.RawMessage) json.RawMessage {
	for name, value := range members {
		n, err := strconv.ParseFloat(string(value), 64)
		isNumber := name == "i" || name == "u"
		switch {
		case len(name) != 1 || !strings.Contains(boundNames, name) || string(value) == "null":
			delete(members, name)
		case isNumber && err == nil && n == math.Trunc(n) && math.Abs(n) < 1<<53:
			members[name] = strconv.AppendInt(nil, int64(n), 10)
		}
	}
	object, _ := json.Marshal(members)
	return object
}

// FuzzBind compares Bind with encoding/json. Where the names of the object are exact, appear once, and are not null, the two agree about every
// value, and about what is in it.
func FuzzBind(f *testing.F) {
	for _, seed := range []string{
		`{"s":"a\u0061\n","i":-128,"u":65535,"f":1.5e3,"b":true,"p":"","l":["x",null],"o":{"x":"y","y":9007199254740993},"q":{},"a":[{"z":"1"},{"z":"2"}]}`,
		`{"i":3.0,"u":3e0,"o":{"y":1e15}}`, `{"s":1}`, `{"i":128}`, `{"u":-1}`, `{"a":[{}]}`, `{"a":[null]}`, `{"a":[{"z":"1"},7]}`,
		`{"s":"a","S":"b"}`, `{"s":"a","s":"b"}`, `{"\u0073":"a"}`, `{"o":{"x":"a","X":"b"}}`, `{"s":null,"o":null,"a":null}`, `{"p":"\ud800"}`, `{"a":[]}`, `{}`, `null`, `[]`,
		`{"i":1e-400,"u":9007199254740993.0}`, `{"u":-0}`, `{"i":-0.0}`, `{"u":18446744073709551616}`, `{"l":[1]}`, `{"o":{"y":"x"}}`,
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
		var members map[string]json.RawMessage
		isObject := json.Unmarshal(data, &members) == nil
		times := map[string]int{}
		for name := range wire.Each(bytes.TrimSpace(data)) {
			times[string(name)]++
		}
		isTwice := false
		for _, name := range boundNames {
			isTwice = isTwice || times[string(name)] > 1
		}
		var want bound
		wantErr := json.Unmarshal(exactly(members), &want)
		switch {
		case (fault != nil && fault.Name == "") == isObject:
			t.Fatalf("%v for an object, or none for something else", err)
		case !isObject:
		case isTwice && err == nil:
			t.Fatal("Bind takes a name that appears twice")
		case isTwice: // which one counts does not matter
		case (err == nil) != (wantErr == nil):
			t.Fatalf("Bind says %v, encoding/json %v", err, wantErr)
		case !reflect.DeepEqual(got, want):
			t.Fatalf("Bind stores %#v, encoding/json %#v", got, want)
		}
	})
}

// What Bind makes of an object: the struct as JSON, and the error. How whole requests are read is in testdata/cases/params.txtar.
func TestBind(t *testing.T) {
	type inner struct {
		Name string `json:"name"`
		Note string `json:"note,omitempty"`
	}
	type outer struct {
		City  string                     `json:"city"`
		N     int8                       `json:"n,omitempty"`
		F     *float64                   `json:"f,omitempty"`
		U     *uint8                     `json:"u,omitempty"`
		Inner *inner                     `json:"inner,omitempty"`
		List  []*inner                   `json:"list,omitempty"`
		By    map[string]json.RawMessage `json:"by,omitempty"`
		Raw   json.RawMessage            `json:"raw,omitempty"`
		Data  []byte                     `json:"data,omitempty"`
		Num   json.Number                `json:"num,omitempty"`
		Not   string                     `json:"-"`
	}
	for _, row := range []struct{ object, want, err string }{
		{` { "x":{"city":"no"}, "City":"no", "c\u0069ty" : "a\"]}{\\" , "f":1e3,"y":["city","]"], "n":null } `, `{"city":"a\"]}{\\","f":1000}`, ""},
		{`{"city":"a","n":3.0}`, `{"city":"a","n":3}`, ""},
		{`{"city":"a","n":-1.2e1}`, `{"city":"a","n":-12}`, ""},
		{`{"city":"a","n":3.5}`, `{"city":"a"}`, "'n' must be an integer"},
		{`{"city":"a","n":128}`, `{"city":"a"}`, "'n' is out of range"},
		{`{"city":"a","n":1e300}`, `{"city":"a"}`, "'n' must be an integer"},
		{`{"n":"x","n":1,"f":[]}`, `{"city":"","f":0}`, "'n' appears twice"}, // before what is missing
		{`{"city":1,"city":"x"}`, `{"city":""}`, "'city' appears twice"},     // the first of several
		{`{"city":"x","city":1}`, `{"city":"x"}`, "'city' appears twice"},
		{`{"city":"a","raw":null}`, `{"city":"a","raw":null}`, ""},
		{`{"city":"a","inner":{"name":"i"},"by":{"k":[1]}}`, `{"city":"a","inner":{"name":"i"},"by":{"k":[1]}}`, ""},
		{`{"city":"a","inner":{"note":"x","NOTE":"y"}}`, `{"city":"a","inner":{"name":"","note":"y"}}`, ""}, // what is below is json.Unmarshal's
		{`{"city":"a","inner":{"name":7,"note":"x"}}`, `{"city":"a","inner":{"name":"","note":"x"}}`, "'inner.name' must be a string"},
		{`{"city":"a","inner":[]}`, `{"city":"a","inner":{"name":""}}`, "'inner' must be an object"},
		{`{"city":"a","u":7.0,"list":[{"name":"x"},{"name":"y","more":"z"}]}`, `{"city":"a","u":7,"list":[{"name":"x"},{"name":"y"}]}`, ""},
		{`{"city":"a","u":256}`, `{"city":"a","u":0}`, "'u' is out of range"},
		{`{"city":"a","u":-1}`, `{"city":"a","u":0}`, "'u' is out of range"},
		{`{"city":"a","list":[{"name":"x"},{"note":1}]}`, `{"city":"a","list":[{"name":"x"},{"name":""}]}`, "'list.note' must be a string"},
		{`{"city":"a","list":[{"name":"x"},7]}`, `{"city":"a","list":[{"name":"x"},{"name":""}]}`, "'list' holds a value of the wrong type"},
		{`{"city":"a","list":{}}`, `{"city":"a"}`, "'list' must be an array"},
		{`{"city":"a","by":[]}`, `{"city":"a"}`, "'by' must be an object"},
		{`{"city":"a","data":"%"}`, `{"city":"a"}`, "'data' has the wrong type: illegal base64 data at input byte 0"},
		{`{"city":"a","data":7}`, `{"city":"a"}`, "'data' must be a string in Base64"},
		{`{"city":"a","n":9007199254740992.0}`, `{"city":"a"}`, "'n' must be an integer"}, // a float64 does not know its neighbour
		{`{"city":"a","num":true}`, `{"city":"a"}`, "'num' must be a number"},
		{`{"city":"a","city":"b"}`, `{"city":"a"}`, "'city' appears twice"},
		{`{"city":"a","c\u0069ty":"b"}`, `{"city":"a"}`, "'city' appears twice"},
		{`{"n":"x","city":1,"f":2}`, `{"city":"","f":2}`, "'city' must be a string"}, // the first field, and wire.Bind stores the others
		{`{"city":null}`, `{"city":""}`, "Missing required member: 'city'"},
		{"", `{"city":""}`, "Missing required member: 'city'"},
		{"null", `{"city":""}`, "Missing required member: 'city'"},
		{`[]`, `{"city":""}`, "not an object"},
		{`{`, `{"city":""}`, "not an object"},
		{`x`, `{"city":""}`, "not an object"},
	} {
		var o outer
		err := wire.Bind(json.RawMessage(row.object), &o)
		got, _ := json.Marshal(o)
		if text := fmt.Sprint(err); string(got) != row.want || text != cmp.Or(row.err, "<nil>") {
			t.Errorf("%s: %s, %s, want %s, %s", row.object, got, text, row.want, row.err)
		}
	}
}

type boundBase struct {
	City string `json:"city"`
}

// A struct that Bind would fill only in part is a mistake of the program: Bind panics, and says what it does not support.
func TestBindPanics(t *testing.T) {
	type hidden struct{ boundBase }
	type named struct {
		boundInner `json:"inner"`
	}
	type pointed struct{ *boundBase }
	type number struct {
		N int `json:"n,omitempty,string"`
	}
	for want, target := range map[string]any{
		"Bind: library.hidden embeds library.boundBase, which is not supported":    &hidden{},
		"Bind: library.named embeds library.boundInner, which is not supported":    &named{},
		"Bind: library.pointed embeds *library.boundBase, which is not supported":  &pointed{},
		"Bind: library.number.N has the tag option string, which is not supported": &number{},
		"Bind: struct { City string }.City has no json tag":                        &struct{ City string }{},
		"Bind: struct { library.boundBase } is not a pointer to a struct":          struct{ boundBase }{},
	} {
		panics(t, want, func() { _ = wire.Bind(nil, target) })
	}
	var left struct {
		boundBase `json:"-"`
		boundItem boundItem // is not exported
	}
	if err := wire.Bind([]byte(`{"city":"x"}`), &left); err != nil || left.City != "" || left.boundItem.Z != "" {
		t.Errorf("%+v, %v", left, err)
	}
}

// A POST of 4 MiB whose objects stand one in the other, thousands of them, is answered: the cost of reading and of encoding it grows with its
// text, and not with its depth as well. The log says how long each took.
func TestDeepPosts(t *testing.T) {
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "depth"}, func(_ context.Context, _ *wire.Exchange, n nested) (any, error) {
		depth := 1
		for next := n.Next; next != nil; next = next.Next {
			depth++
		}
		return strconv.Itoa(depth), nil
	})
	wire.AddTool(server, wire.Tool{Name: "sampled"}, func(_ context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		var answer wire.SamplingResult
		if !x.Input("q", &answer) {
			return sampling, nil
		}
		return answer.Content, nil
	})
	const size = 4<<20 - 1000 // with what stands around them, less than a body may have
	objects, results := nestedObjects(5000, size), nestedResults(mostResults, size)
	to := wire.HTTPDialer{URL: serveWeb(t, newHandler(t, server)).url}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := dial(t, to, &wire.Client{Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{
			"sampling/createMessage": func(context.Context, *wire.Exchange) (any, error) { return json.RawMessage(results), nil },
		}})
		for name, arguments := range map[string]string{"depth": objects, "sampled": "{}"} {
			began := time.Now()
			var got json.RawMessage
			err := c.Call(t.Context(), "tools/call", wire.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)}, &got)
			t.Logf("%s, %s: %v", name, version, time.Since(began))
			isRight := bytes.Contains(got, []byte(`"text":"5000"`))
			if name == "sampled" {
				isRight = len(got) > 4_000_000 && bytes.Count(got, []byte("tool_result")) == mostResults
			}
			if err != nil || !isRight {
				t.Errorf("%s, %s: %v, %d bytes: %.300s", name, version, err, len(got), got)
			}
		}
	}
}

// nested is an object that may hold another one of its kind, and so on.
type nested struct {
	Text string  `json:"text,omitempty"`
	Next *nested `json:"next,omitempty"`
}

// nest returns so many objects, one in the other, of so many bytes together. The member filler, many small values, takes the most time of a
// reader that skips it again at each level.
func nest(filler, head, tail string, depth, size int) string {
	head = `{"` + filler + `":[%1],` + head
	head = strings.Replace(head, "%", strings.Repeat("1,", max(0, size/depth-len(head+tail))/2), 1)
	return strings.Repeat(head, depth) + strings.Repeat(tail+"}", depth)
}

// nestedObjects returns the JSON of a nested of so many levels and bytes.
func nestedObjects(depth, size int) string {
	return strings.Replace(nest("filler", `"text":"x","next":`, ``, depth, size), `"next":}`, `"next":null}`, 1)
}

// nestedResults returns the JSON of a SamplingResult of so many bytes, in which so many tool_results stand one in the other.
func nestedResults(depth, size int) string {
	content := nest("structuredContent", `"type":"tool_result","toolUseId":"x","content":[`, `]`, depth, size)
	return `{"role":"user","model":"m","content":` + content + `}`
}

// mostResults is how many tool_results can stand one in the other: each has two levels, and encoding/json reads 10,000.
const mostResults = 4990
