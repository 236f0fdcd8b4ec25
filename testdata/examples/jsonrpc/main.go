// SPDX-License-Identifier: 0BSD

// JSON-RPC without MCP: both ends of a conversation, over a pipe in memory. In place of
// the pipe there may be a NewLineConn, or a Conn of your own. It needs:
//
//	go run ./testdata/take -to ../mine/rpc jsonrpc
package main

import (
	"context"
	"fmt"
	"log"

	"example.com/mine/rpc"
)

type number struct {
	N int `json:"n"`
}

// double asks the caller for the number that it doubles.
func double(ctx context.Context, x *rpc.Exchange) (any, error) {
	if x.Request.Method != "double" {
		return nil, rpc.MethodNotFound(x.Request.Method)
	}
	var bound struct {
		Max int `json:"max"`
	}
	if err := x.Bind(&bound); err != nil {
		return nil, err
	}
	var asked number
	if err := x.Call(ctx, "which", nil, &asked); err != nil {
		return nil, err
	}
	if asked.N > bound.Max {
		return nil, rpc.InvalidParams("%d is more than %d", asked.N, bound.Max)
	}
	return number{2 * asked.N}, nil
}

func main() {
	ctx := context.Background()
	ours, theirs := rpc.Pipe()
	ended := make(chan error)
	go func() { // ends when peer is closed
		ended <- rpc.ServeConn(ctx, theirs, rpc.HandlerFunc(double), nil)
	}()
	which := rpc.HandlerFunc(func(context.Context, *rpc.Exchange) (any, error) { return number{21}, nil })
	peer := rpc.OpenConn(ctx, ours, which, nil)
	for _, params := range []any{map[string]int{"max": 50}, map[string]int{"max": 20}, nil} {
		var result number
		err := peer.Call(ctx, "double", params, &result)
		fmt.Println(result.N, err)
	}
	fmt.Println(peer.Call(ctx, "triple", nil, nil))
	if err := peer.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-ended, peer.Context().Err())

	// Messages can be read and written without a conversation.
	request, err := rpc.NewRequest(rpc.StringID("a"), "double", map[string]int{"max": 50})
	if err != nil {
		log.Fatal(err)
	}
	response := rpc.NewResponse(rpc.NumberID(7), number{42}, nil)
	for _, m := range []*rpc.Message{request, response} {
		line := rpc.Payload{Messages: []*rpc.Message{m}}.Append(nil)
		fmt.Printf("%s %v\n", line, rpc.Decode(line).Messages[0].ID)
	}
}
