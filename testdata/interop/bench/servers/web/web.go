// Package web is what the servers here have in common, and have as mcpwire has
// it: the flags, the limits of the HTTP server, the log, and the end.
package web

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const stall = 30 * time.Second

// Serve serves stdio, or HTTP if a flag says so.
func Serve(name string, handler http.Handler, stdio func(context.Context) error) {
	addr := flag.String("http", "", "serve HTTP at `address` instead of stdio")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *addr == "" {
		if err := stdio(ctx); err != nil && ctx.Err() == nil {
			log.Fatal(err)
		}
		return
	}
	text := slog.NewTextHandler(os.Stderr, nil)
	server := &http.Server{Handler: handler, ReadTimeout: stall, WriteTimeout: stall, IdleTimeout: 4 * stall,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(text, slog.LevelDebug)}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(os.Stderr, "%s: listening on http://%s/mcp\n", name, listener.Addr())
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		log.Fatal(err)
	}
}
