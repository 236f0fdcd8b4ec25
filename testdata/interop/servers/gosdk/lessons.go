package main

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type note struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// newLessons has what the demo of mcpwire has, as far as the lessons use it: so that what is
// different there is the protocol.
func newLessons() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk", Version: "1.0.0"}, &mcp.ServerOptions{
		SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, ask)
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: "get-weather", InputSchema: markedSchema}, getWeather)
	mcp.AddTool(s, &mcp.Tool{Name: "set-note"}, func(ctx context.Context, _ *mcp.CallToolRequest, args note) (*mcp.CallToolResult, any, error) {
		uri := "note:///" + args.Name
		addResource(s, uri)
		return text("Noted as %s", uri), nil, s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri})
	})
	addResource(s, "note:///welcome")
	return s
}

type echoing struct {
	Text string `json:"text"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, args echoing) (*mcp.CallToolResult, any, error) {
	return text("%s", args.Text), nil, nil
}

// markedSchema has what jsonschema tags cannot say.
var markedSchema = json.RawMessage(`{"type":"object","required":["city"],"properties":{"city":{"type":"string"},
	"unit":{"type":"string","x-mcp-header":"Unit","enum":["celsius","fahrenheit"]}}}`)

type weather struct {
	City string `json:"city"`
	Unit string `json:"unit,omitempty"`
}

func getWeather(_ context.Context, _ *mcp.CallToolRequest, args weather) (*mcp.CallToolResult, any, error) {
	return text("Current temperature in %s is 64°F", args.City), nil, nil
}

// ask returns what it wants to know. A client of an older revision is then asked by the SDK.
func ask(_ context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	answer, _ := req.Params.InputResponses["name"].(*mcp.ElicitResult)
	if answer == nil {
		form := json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)
		return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{
			"name": &mcp.ElicitParams{Message: "What is your name?", RequestedSchema: form}}}, nil, nil
	}
	result := text("%s %v", answer.Action, answer.Content["name"])
	result.IsError = answer.Action != "accept"
	return result, nil, nil
}
