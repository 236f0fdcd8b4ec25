package library

import (
	"encoding/json"
	"interop/wire"
	"strconv"
	"strings"
	"testing"
)

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

// BenchmarkBindDepth compares Bind with json.Unmarshal. Neither may take longer for a text because it is deep.
func BenchmarkBindDepth(b *testing.B) {
	for _, mebibytes := range []int{1, 4} {
		for _, depth := range []int{1, 10, 100, 1000, 5000} {
			name := strconv.Itoa(mebibytes) + "MiB/" + strconv.Itoa(depth)
			objects := nestedObjects(depth, mebibytes<<20)
			benchDecode[nested](b, "nested/"+name+"/Bind", objects, wire.Bind)
			benchDecode[nested](b, "nested/"+name+"/Unmarshal", objects, unmarshal)
			results := nestedResults(min(depth, mostResults), mebibytes<<20)
			benchDecode[wire.SamplingResult](b, "tool_result/"+name+"/Bind", results, wire.Bind)
			benchDecode[sampledContent](b, "tool_result/"+name+"/Unmarshal", results, unmarshal)
		}
	}
}

// sampledContent is a SamplingResult without a method UnmarshalJSON.
type sampledContent struct {
	Content wire.Content `json:"content"`
}

func unmarshal(object json.RawMessage, target any) error { return json.Unmarshal(object, target) }

func benchDecode[T any](b *testing.B, name, text string, decode func(json.RawMessage, any) error) {
	b.Run(name, func(b *testing.B) {
		for b.Loop() {
			var target T
			if err := decode(json.RawMessage(text), &target); err != nil {
				b.Fatal(err)
			}
		}
	})
}
