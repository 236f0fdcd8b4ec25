package library

import (
	"encoding/json"
	"interop/wire"
	"testing"
)

const benchCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get-weather","arguments":{"city":"San Francisco"}}}`

func BenchmarkDecode(b *testing.B) {
	line := []byte(benchCall)
	b.Run("mcpwire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			wire.Decode(line)
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m bareMessage
			if err := json.Unmarshal(line, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	result := wire.ToolResult{Content: []wire.Content{wire.TextContent("Current temperature in San Francisco is 18°C")}}
	b.Run("mcpwire", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			wire.Payload{Messages: []*wire.Message{wire.NewResponse(wire.NumberID(1), result, nil)}}.Append(nil)
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "result": result}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type bareMessage struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  struct {
		Name      string `json:"name"`
		Arguments struct {
			City string `json:"city"`
		} `json:"arguments"`
	} `json:"params"`
}
