package oauth

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Loopback is the redirect URL of a program on the user's own machine: a server at
// 127.0.0.1 that waits until the browser comes back. RFC 8252, section 7.3.
//
//	back, err := oauth.NewLoopback(func(address string) error {
//		fmt.Println("Open this page to log in:", address)
//		return nil
//	})
//	defer back.Close()
//	login := &oauth.Transport{Server: address, RedirectURL: back.URL, Authorize: back.Authorize}
//
// A program that opens the browser by itself must start it with exec.Command, and not
// with a shell: the URL comes from another machine.
type Loopback struct {
	URL    string // for Transport.RedirectURL
	show   func(authorizationURL string) error
	server *http.Server
	served sync.WaitGroup        // the goroutine that serves
	login  atomic.Pointer[login] // that waits; nil: none
}

type login struct {
	state  string
	answer chan url.Values // has room for one
}

// NewLoopback listens at a free port. show shows a URL to the user. It must not wait
// for the user.
func NewLoopback(show func(authorizationURL string) error) (*Loopback, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Loopback{URL: "http://" + listener.Addr().String() + "/callback", show: show}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", l.take)
	l.server = &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}
	l.served.Go(func() { _ = l.server.Serve(listener) })
	return l, nil
}

// Close ends the server.
func (l *Loopback) Close() error {
	err := l.server.Close()
	l.served.Wait()
	return err
}

// Authorize shows the URL, and waits until the browser comes back, or ctx ends.
func (l *Loopback) Authorize(ctx context.Context, authorizationURL string) (url.Values, error) {
	u, err := url.Parse(authorizationURL)
	if err != nil || u.Query().Get("state") == "" {
		return nil, errors.New("the authorization URL has no state")
	}
	waiting := &login{u.Query().Get("state"), make(chan url.Values, 1)}
	l.login.Store(waiting)
	defer l.login.Store(nil)
	err = l.show(authorizationURL)
	if err != nil {
		return nil, err
	}
	select {
	case values := <-waiting.answer:
		return values, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// take gives an answer to the login that waits, once. Any web page can send a request to
// 127.0.0.1: an answer with another state must not end the login.
func (l *Loopback) take(w http.ResponseWriter, r *http.Request) {
	waiting := l.login.Load()
	answer := r.URL.Query()
	if waiting == nil || answer.Get("state") != waiting.state || !l.login.CompareAndSwap(waiting, nil) {
		http.Error(w, "No login waits for this.", http.StatusNotFound)
		return
	}
	waiting.answer <- answer
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Referrer-Policy", "no-referrer")
	_, _ = w.Write([]byte("You may close this page.\n"))
}
