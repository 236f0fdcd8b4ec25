// Client is what the official conformance suite starts for its scenarios of
// authorization: a wire.Client with an oauth.Transport. The suite names the scenario in
// the environment, and the URL of its server as the last argument. An error is what
// went wrong for the user: in some scenarios that is what should happen. The suite sees
// for itself what was sent.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"interop/oauth"
	"interop/wire" // go run ./copywire
)

const redirectURL = "http://localhost:3000/callback" // nothing listens there

func main() {
	if err := run(os.Args[len(os.Args)-1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(target string) error {
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second) // the suite waits for longer
	defer stop()
	var known struct { // what the suite says about a client that is registered by hand
		Issuer string `json:"issuer,omitempty"`
		ID     string `json:"client_id,omitempty"`
		Secret string `json:"client_secret,omitempty"`
	}
	if err := wire.Bind(json.RawMessage(os.Getenv("MCP_CONFORMANCE_CONTEXT")), &known); err != nil {
		return err
	}
	login := &oauth.Transport{
		Server:      target,
		Authorize:   authorize,
		RedirectURL: redirectURL,
		ClientName:  "mcpwire-oauth",
	}
	defer login.Close()
	if known.ID != "" {
		login.Registered = map[string]oauth.Registration{known.Issuer: {ID: known.ID, Secret: known.Secret}}
	}
	if os.Getenv("MCP_CONFORMANCE_SCENARIO") == "auth/basic-cimd" {
		login.ClientMetadataURL = "https://conformance-test.local/client-metadata.json"
	}
	client := &wire.Client{Info: wire.Implementation{Name: "mcpwire-oauth", Version: "0.1.0"}}
	defer client.Close()
	err := client.Connect(ctx, &wire.HTTPDialer{URL: target, Client: &http.Client{Transport: login}})
	if err != nil {
		return err
	}
	if want := os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"); client.Server().Version != want {
		return fmt.Errorf("the server speaks %s, but we have found %s", want, client.Server().Version)
	}
	if err := client.Call(ctx, "tools/list", nil, nil); err != nil {
		return err
	}
	call := map[string]any{"name": "test-tool", "arguments": struct{}{}}
	return client.Call(ctx, "tools/call", call, nil)
}

// authorize is the browser and the user: it asks the authorization server, which sends
// it back at once.
func authorize(ctx context.Context, authorizationURL string) (url.Values, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, authorizationURL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultTransport.RoundTrip(r) // follows no redirect
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	back, err := resp.Location()
	if err != nil {
		return nil, errors.New("the authorization server does not send the user back")
	}
	answer := back.Query()
	back.RawQuery = ""
	if back.String() != redirectURL {
		return nil, fmt.Errorf("the user is sent to %v", back)
	}
	return answer, nil
}
