// SPDX-License-Identifier: 0BSD

// A server over HTTP, beside what a site has already: two users with tokens, the pages
// of one other site, middleware that logs, and a limit for each user. The package mcp is a
// copy of all five files: see "Copy it" in README.md of mcpwire.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"example.com/mine/mcp"
)

// users has the name of each user, by token. A real program keeps hashes of the tokens.
var users = map[string]string{"Bearer a-secret": "Ada", "Bearer b-secret": "Bob"}

func userOf(r *http.Request) string { return users[r.Header.Get("Authorization")] }

func authenticate(r *http.Request) (principal string, err error) {
	if principal = userOf(r); principal == "" {
		return "", &mcp.AuthError{Challenge: `Bearer realm="mine"`} // 401
	}
	return principal, nil
}

func whoami(ctx context.Context, x *mcp.Exchange, _ struct{}) (any, error) {
	return "You are " + x.Principal, nil
}

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "")
	flag.Parse()
	pages, endpoint := newSite()
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("listening at http://%s/api/mcp", listener.Addr())
	site := &http.Server{Handler: pages, ReadTimeout: 30 * time.Second} // no client may take longer to send a request
	serve(site, listener, endpoint)
}

// newSite returns all pages of the site, and the one that speaks MCP.
func newSite() (http.Handler, *mcp.StreamableHandler) {
	server := &mcp.Server{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	mcp.AddTool(server, mcp.Tool{Name: "whoami", Description: "Returns your name."}, whoami)
	endpoint := &mcp.StreamableHandler{
		Handler:  &limited{Server: server, most: 8},
		Sessions: &mcp.Sessions{Keep: 4 << 20}, // for legacy clients; a stream keeps 4 MiB for a client that is cut off
		Guard: mcp.Guard{
			Authenticate: authenticate,
			Origins:      []string{"https://app.example.com"}, // whose pages may call
			Log:          slog.Default(),
		},
	}
	mux := http.NewServeMux()
	mux.Handle("/api/mcp", endpoint)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "well") })
	return logged(mux), endpoint
}

// limited is a Server that lets each user have so many requests at once. Middleware could
// not count them: in a session a call continues when its client has gone.
type limited struct {
	*mcp.Server
	most    int64
	running sync.Map // by user; for many users, one that forgets those who have gone
}

// Handle takes the place of the Server's.
func (l *limited) Handle(ctx context.Context, x *mcp.Exchange) (any, error) {
	n, _ := l.running.LoadOrStore(x.Principal, new(atomic.Int64))
	defer n.(*atomic.Int64).Add(-1)
	if n.(*atomic.Int64).Add(1) > l.most {
		return nil, &mcp.Error{Code: mcp.CodeInternalError, Message: "Too many requests at once"}
	}
	return l.Server.Handle(ctx, x)
}

// logged logs each request when it has ended.
func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began, kept := time.Now(), &statusWriter{w, http.StatusOK}
		next.ServeHTTP(kept, r)
		slog.Info("served", "method", r.Method, "path", r.URL.Path, "status", kept.status, "took", time.Since(began))
	})
}

// statusWriter keeps the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is needed: without it nothing can be streamed through a statusWriter.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve serves until the program is told to stop. Then it ends the streams and the
// connections together, and waits five seconds at most.
func serve(site *http.Server, listener net.Listener, endpoint *mcp.StreamableHandler) {
	stop, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-stop.Done()
		var streams sync.WaitGroup
		streams.Go(func() { endpoint.Close() })
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if site.Shutdown(ctx) != nil {
			site.Close()
		}
		streams.Wait()
	}()
	if err := site.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	<-ended
}
