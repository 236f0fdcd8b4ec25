package interop

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Here the page that mcpwire -http serves is looked at, in Chromium. The pictures of it in testdata
// are made by: go test -run TestPage -update .
var update = flag.Bool("update", false, "write the pictures of the page")

// ---- Chromium ----

// tab is a tab of Chromium that a test drives.
type tab struct {
	t   *testing.T
	ctx context.Context // until Chromium ends

	mu      sync.Mutex // guards the field below
	console []string   // what the console says, exceptions included
}

// openTab starts Chromium with one empty tab. It ends with the test.
func openTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox,
		chromedp.ExecPath(find(t, "chromium", "chromium-browser", "google-chrome")),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("no-proxy-server", true), chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("host-resolver-rules", "MAP *.example 127.0.0.1"))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	b := &tab{t: t}
	b.ctx, end = chromedp.NewContext(allocator)
	t.Cleanup(end)
	err := chromedp.Listen(b.ctx, func(said any) {
		switch said.(type) {
		case *log.EventEntryAdded, *runtime.EventConsoleAPICalled, *runtime.EventExceptionThrown:
			text, _ := json.Marshal(said)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.console = append(b.console, string(text))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	act(b, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) { // as that of a user, who looks at it
		return cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	})
	return b
}

// act does something in a tab, and returns its value.
func act[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// eval runs JavaScript in the page, and returns its value, or that of its promise.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	return act(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

func (b *tab) do(script string) {
	b.t.Helper()
	eval[chromedp.Void](b, script)
}

// open loads a page.
func (b *tab) open(url string) {
	b.t.Helper()
	act(b, chromedp.Navigate(url))
}

// await waits until an expression is true, and returns how long that took.
func (b *tab) await(condition string) time.Duration {
	b.t.Helper()
	began := time.Now()
	eventually(b.t, condition, func() bool { return eval[bool](b, condition) })
	return time.Since(began)
}

// resize sets the width and the height of the window.
func (b *tab) resize(width, height int64) {
	b.t.Helper()
	act(b, chromedp.EmulateViewport(width, height, chromedp.EmulateScale(1)))
}

// paint chooses between light and dark.
func (b *tab) paint(scheme string) {
	b.t.Helper()
	act(b, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
		return cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	})
}

// picture keeps what the window shows as a file of testdata, with -update.
func (b *tab) picture(name string) {
	b.t.Helper()
	shot := act(b, chromedp.CaptureScreenshot())
	if len(shot) > 150_000 {
		b.t.Errorf("%s has %d bytes", name, len(shot))
	}
	if *update {
		if err := os.WriteFile(filepath.Join("..", name), shot, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}

// isQuiet fails the test if the console of the browser says anything.
func (b *tab) isQuiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.console {
		b.t.Errorf("console: %s", line)
	}
	b.console = nil
}

func (b *tab) forgetConsole() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.console = nil
}

// fits fails the test if the page is wider than the window, at any of these widths.
func (b *tab) fits(widths ...int64) {
	b.t.Helper()
	for _, width := range widths {
		b.resize(width, 900)
		if got := eval[int64](b, `document.documentElement.scrollWidth`); got > width {
			b.t.Errorf("at %d the page is %d wide", width, got)
		}
	}
}

// quotedText returns a text as a string of JavaScript.
func quotedText(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// ---- The page ----

// The page needs no token. Its policy allows the one script and
// the one style by a nonce, which is another each time, and nothing else.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	server := serve(t, "-watch", "-token", "s3cret")
	asBrowser := map[string]string{"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
	resp := (&visitor{url: server.base + "/"}).do(t, "GET", asBrowser, "")
	text := body(t, resp)
	nonce := regexp.MustCompile(`nonce-([A-Z2-7]{26})`).FindStringSubmatch(resp.Header.Get("Content-Security-Policy"))
	if nonce == nil {
		t.Fatal(resp.Header)
	}
	again := body(t, (&visitor{url: server.base + "/"}).do(t, "GET", asBrowser, ""))
	if resp.StatusCode != 200 || again == text || len(again) != len(text) {
		t.Errorf("%s, and %d and %d bytes", resp.Status, len(text), len(again))
	}
	for _, element := range []string{"script", "style"} {
		if strings.Count(text, "<"+element+">") != 0 || strings.Count(text, "<"+element+` nonce="`+nonce[1]+`">`) != 1 {
			t.Errorf("not one of <%s>", element)
		}
	}
	want := "default-src 'none'; connect-src 'self'; script-src 'nonce-" + nonce[1] + "'; style-src 'nonce-" + nonce[1] +
		"'; base-uri 'none'; frame-ancestors 'none'"
	if got := resp.Header.Get("Content-Security-Policy"); got != want {
		t.Errorf("policy:\n%s, want\n%s", got, want)
	}
	if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|\son[a-z]+=|\bstyle=|src=`).FindAllString(text[:strings.Index(text, `id="data"`)]+text[strings.Index(text, "'use strict'"):], -1); found != nil {
		t.Errorf("the page makes HTML of strings, or asks for more: %q", found)
	}
	if found := regexp.MustCompile(`https?://[a-z.]+`).FindAllString(strings.SplitN(text, `id="data"`, 2)[0], -1); !slices.Equal(found, []string{"https://modelcontextprotocol.io"}) {
		t.Errorf("other hosts: %q", found)
	}
}

// The lines for a shell run as they stand, and no host can bring a command of its own into them.
func TestPageSnippets(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := openTab(t)
	b.open(server.base + "/")
	lines := eval[[]string](b, `[...document.querySelectorAll('#snippets pre')].map(pre => pre.textContent).filter(text => /^(curl|mcpwire) /.test(text))`)
	if len(lines) != 3 {
		t.Fatalf("%q", lines)
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "curl ") {
			find(t, "curl")
		}
		cmd := exec.Command("sh", "-c", line)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(mcpwire)+":"+os.Getenv("PATH"))
		out, err := cmd.Output()
		if err != nil || !strings.Contains(string(out), "mcpwire demo") && !strings.Contains(string(out), "in Berlin is") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
		if !strings.Contains(line, " '"+server.mcp+"'") {
			t.Errorf("the host is not quoted: %s", line)
		}
	}
	const host = `http://$(id)'"` + "`id`" + `\;&[::1]{a,b}` // more than any browser takes for a host
	word := eval[string](b, `quoted(`+quotedText(host)+`)`)
	if out, err := exec.Command("sh", "-c", "printf %s "+word).Output(); err != nil || string(out) != host {
		t.Errorf("%s: %v, %s", word, err, out)
	}
	b.isQuiet()
}

var wireLine = regexp.MustCompile(`(?m)^    [A-Z]*[<>] ([^(\n].*)$`)

// Each lesson is drawn: arrows hold what both sides say, line by line and in this order.
func TestPageLessons(t *testing.T) {
	t.Parallel()
	server := serve(t)
	b := openTab(t)
	b.resize(1280, 900)
	b.open(server.base + "/")
	names := lessonNames(t)
	for _, name := range names {
		lesson, err := os.ReadFile("../" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		b.do(`location.hash = ` + quotedText(name))
		b.await(`document.querySelector('#lessons [aria-current]').hash === ` + quotedText("#"+name))
		got := eval[struct {
			Bytes []string `json:"bytes"`
			Title string   `json:"title"`
			Learn string   `json:"learn"`
			Next  []string `json:"next"`
		}](b, `({ title: document.querySelector('#lesson h3').textContent,
			learn: document.querySelector('#lesson h3 + p').textContent,
			next: [...document.querySelectorAll('#lesson .note a')].map(a => a.textContent + a.hash),
			bytes: [...document.querySelectorAll('#lesson .arrow pre')].map(pre => pre.textContent) })`)
		var drawn []string
		for _, line := range strings.Split(strings.Join(got.Bytes, "\n"), "\n") {
			if line != "" {
				drawn = append(drawn, line)
			}
		}
		var want []string // the lines that client and server say
		for _, m := range wireLine.FindAllStringSubmatch(string(lesson), -1) {
			want = append(want, m[1])
		}
		if len(want) == 0 || !slices.Equal(drawn, want) {
			t.Errorf("%s: drawn is\n%s\nwant\n%s", name, strings.Join(drawn, "\n"), strings.Join(want, "\n"))
		}
		if title, _, _ := strings.Cut(string(lesson), "\n"); "# "+got.Title[3:] != title || got.Title[:3] != name[:2]+" " || !strings.HasPrefix(got.Learn, "You learn: ") {
			t.Errorf("%s: the title is %q, want %q; then %q", name, got.Title, title, got.Learn)
		}
		if next := regexp.MustCompile(`(?m)^Next: ((\d\d), .*)$`).FindSubmatch(lesson); next != nil && (len(got.Next) != 1 || !strings.HasPrefix(got.Next[0], string(next[1])+"#"+string(next[2])+"-")) {
			t.Errorf("%s: next is %q, want %q", name, got.Next, next[1])
		}
		b.fits(400, 1280)
	}
	b.fits(320, 400, 700, 1600)
	b.isQuiet()

	// The road and the appendix are those of ../README.md. On the first screen stands how to connect and how to call.
	index, _ := os.ReadFile("../README.md")
	parts := eval[[][]string](b, `[...document.querySelectorAll('#lessons ol')].map(ol => [...ol.querySelectorAll('a')].map(a => a.hash.slice(1)))`)
	road, _, _ := strings.Cut(string(index), "\n## Appendix")
	if len(parts) != 2 || len(parts[0])+len(parts[1]) != len(names) {
		t.Errorf("%q", parts)
	}
	for i, part := range parts {
		for _, name := range part {
			if isOnRoad := strings.Contains(road, "("+name+".md)"); isOnRoad != (i == 0) {
				t.Errorf("%s is on the road: %v", name, isOnRoad)
			}
		}
	}
	b.resize(320, 900)
	if eval[bool](b, `scrollTo(0, 0), [...document.querySelectorAll('.first li')].some(li => li.getBoundingClientRect().bottom > innerHeight)`) {
		t.Error("how to connect is not on the first screen")
	}

	b.resize(1000, 540)
	b.paint("light")
	b.do(`location.hash = '06-http-event-stream'`)
	b.await(`document.getElementById('lesson').textContent.includes('counted to 2')`)
	b.do(`document.querySelectorAll('#lesson .arrow')[0].scrollIntoView()`)
	b.picture("page-lessons.png")
}

// A keyboard reaches everything: what can be clicked can have the focus and has a name, and the
// focus can be seen. The page has one heading of the first level, and landmarks.
func TestPageKeyboard(t *testing.T) {
	t.Parallel()
	server := serve(t, "-watch")
	b := openTab(t)
	b.open(server.base + "/#06-http-event-stream")
	for _, scheme := range []string{"light", "dark"} {
		b.paint(scheme)
		wrong := eval[[]string](b, `(() => {
			const wrong = [];
			for (const one of document.querySelectorAll('a, button, input, select, textarea, summary')) {
				const label = one.labels?.[0]?.textContent || one.getAttribute('aria-label') || one.textContent;
				if (!label.trim()) wrong.push('no name: ' + one.outerHTML);
				if (one.tabIndex < 0) wrong.push('no focus: ' + one.outerHTML);
			}
			for (const name of ['header', 'main', 'nav', 'footer', 'h1'])
				if (document.querySelectorAll(name).length !== 1) wrong.push(name);
			const button = document.querySelector('#snippets button');
			button.focus({ focusVisible: true });
			if (getComputedStyle(button).outlineStyle === 'none') wrong.push('the focus is not to be seen');
			const brightness = color => color.match(/\d+/g).slice(0, 3).map(Number).map(v => v / 255)
				.map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
				.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
			const paper = brightness(getComputedStyle(document.body).backgroundColor);
			for (const name of ['body', '.quiet', '.client', '.server', 'a', '.fields']) {
				const ink = brightness(getComputedStyle(document.querySelector(name)).color);
				const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
				if (contrast < 4.5) wrong.push(name + ' has a contrast of ' + contrast); // WCAG 2.2, 1.4.3
			}
			return wrong;
		})()`)
		if len(wrong) > 0 {
			t.Errorf("%s: %q", scheme, wrong)
		}
	}
	b.isQuiet()
}

// ---- What can be watched ----

// A page that watches shows the calls of others within a second. What they send stays text. The rows can be
// filtered by session, paused, and copied in the notation of the lessons.
func TestPageWatch(t *testing.T) {
	t.Parallel()
	server := serve(t, "-watch")
	b := openTab(t)
	b.resize(1280, 900)
	b.open(server.base + "/")
	b.await(`document.getElementById('watch-status').textContent === 'Watching.'`)
	live := func(text string) string {
		return `document.getElementById('live').textContent.includes(` + quotedText(text) + `)`
	}
	one := visit(t, server.mcp)
	one.call(t, "tools/call", `{"name":"echo","arguments":{"text":"from the first"}}`)
	if took := b.await(live("from the first")); took > time.Second {
		t.Errorf("shown after %v", took)
	}
	const evil = `<script>document.title='evil'</script><img src=x onerror="document.title='evil'">`
	encoded, _ := json.Marshal(evil)
	two := visit(t, server.mcp)
	two.call(t, "tools/call", fmt.Sprintf(`{"name":"echo","arguments":{"text":%s}}`, encoded))
	b.await(live(`onerror=`))
	if title := eval[string](b, `document.title + document.querySelectorAll('#live script, #live img').length`); title != "mcpwire: the wire of MCP0" {
		t.Error(title)
	}
	one.call(t, "tools/call", `{"name":"count","arguments":{"n":2},"_meta":{"progressToken":"t"}}`)
	b.await(live("counted to 2"))
	b.fits(400, 1600)

	// Of one session.
	choose := func(session string) (text string) {
		return eval[string](b, `(() => { const choice = document.getElementById('session');
			choice.value = `+quotedText(session)+`; choice.dispatchEvent(new Event('change'));
			return document.getElementById('live').innerText; })()`)
	}
	if text := choose("session-1"); !strings.Contains(text, "from the first") || strings.Contains(text, "onerror") {
		t.Errorf("session-1: %s", text)
	}
	lesson := eval[string](b, `(() => { document.getElementById('copy-lesson').click(); return document.getElementById('lesson-text').value; })()`)
	if len(wireLine.FindAllString(lesson, -1)) < 8 {
		t.Errorf("copied: %s", lesson)
	}
	for _, want := range []string{"> Mcp-Session-Id: session-1\n", "< data: {", "< 202\n", `"text":"counted to 2"`} {
		if !strings.Contains(lesson, want) {
			t.Errorf("no %q in %s", want, lesson)
		}
	}
	if text := choose("session-2"); strings.Contains(text, "from the first") || !strings.Contains(text, "onerror") {
		t.Errorf("session-2: %s", text)
	}
	if modern := run(t, nil, "", mcpwire, "call", "-tool", "echo", "-arg", "text=from no session", server.mcp); modern.exit != 0 {
		t.Error(modern)
	}
	b.await(live("“from no session”")) // the result
	if text := choose("none"); strings.Contains(text, "from the first") || !strings.Contains(text, "from no session") {
		t.Errorf("without a session: %s", text)
	}
	choose("")

	// Paused: what comes meanwhile is shown afterwards.
	b.do(`document.getElementById('pause').click()`)
	one.call(t, "tools/call", `{"name":"echo","arguments":{"text":"said in a pause"}}`)
	time.Sleep(300 * time.Millisecond) // longer than it takes when it is not paused
	if eval[bool](b, live("said in a pause")) {
		t.Error("shown while paused")
	}
	b.do(`document.getElementById('pause').click()`)
	b.await(live("said in a pause"))
	b.isQuiet()

	b.resize(1000, 640)
	b.paint("dark")
	b.await(`document.getElementById('copy-lesson').textContent === 'Copy as a lesson'`) // again
	b.do(`document.getElementById('lesson-text').hidden = true; document.getElementById('watch').scrollIntoView()`)
	choose("session-1")
	b.do(`document.getElementById('live').scrollTop = document.querySelectorAll('#live .arrow:not([hidden])')[6].offsetTop`)
	b.picture("page-watch.png")
}

// A page of another origin cannot watch. One that watches shows no secret.
func TestPageWatchIsGuarded(t *testing.T) {
	t.Parallel()
	server := serve(t, "-watch", "-token", "s3cret")
	page := newSite(t)

	// A browser lets no page of another origin read it, not even one of this machine.
	b := openTab(t)
	open := serve(t, "-watch")
	b.open(page.URL + "/")
	for _, url := range []string{server.base, open.base} {
		said := eval[string](b, `fetch('`+url+`/watch', { headers: { Accept: 'text/event-stream' } }).then(r => 'status ' + r.status, e => e.name)`)
		if said != "TypeError" {
			t.Errorf("a page of %s reads %s: %s", page.URL, url, said)
		}
	}

	b.open(server.base + "/")
	b.forgetConsole() // Chromium has noted what was refused
	start := func(token string) {
		b.do(`document.getElementById('token').value = ` + quotedText(token) + `; document.getElementById('start').click()`)
	}
	start("wrong")
	b.await(`document.getElementById('watch-status').textContent.includes('does not accept this token')`)
	b.forgetConsole() // Chromium notes each status of 401
	start("s3cret")
	b.await(`document.getElementById('watch-status').textContent === 'Watching.'`)
	v := &visitor{url: server.mcp}
	resp := v.do(t, "POST", map[string]string{"Authorization": "Bearer s3cret"}, hello)
	expect(t, body(t, resp), `{"result":{}}`)
	b.await(`document.getElementById('live').textContent.includes('initialize')`)
	if shown := eval[string](b, `document.getElementById('live').textContent`); strings.Contains(shown, "s3cret") || strings.Contains(shown, resp.Header.Get("Mcp-Session-Id")) {
		t.Errorf("a secret is shown: %s", shown)
	}
	b.isQuiet()
}

// A watcher that does not read delays nobody, and is dropped. There is a bound for those who watch, and all end with the server.
func TestWatchIsBounded(t *testing.T) {
	t.Parallel()
	server := launch(t, "127.0.0.1:0", "-watch")
	url := server.base + "/watch"
	watchers := []*http.Response{}
	for range 8 {
		watcher := (&visitor{url: url}).do(t, "GET", nil, "")
		if watcher.StatusCode != 200 {
			t.Fatal(watcher.Status)
		}
		watchers = append(watchers, watcher)
	}
	if resp := (&visitor{url: url}).do(t, "GET", nil, ""); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("one too many: %s", resp.Status)
	}
	v := visit(t, server.mcp)
	for i := range 120 { // of 60 kB each way, which nobody reads
		v.call(t, "tools/call", fmt.Sprintf(`{"name":"echo","arguments":{"text":"%d %s"}}`, i, strings.Repeat("x", 60_000)))
	}
	_, _ = io.Copy(io.Discard, watchers[0].Body) // it comes to an end, whichever
	again := watch(t, server.daemon)
	v.call(t, "tools/call", `{"name":"echo","arguments":{"text":"afterwards"}}`)
	again.next(t, "afterwards")
	server.stop(syscall.SIGTERM)
	for range again.events { // up to the end
	}
}

// watch begins to watch, as a page does.
func watch(t *testing.T, server daemon) *stream {
	t.Helper()
	return (&visitor{url: server.base + "/watch"}).listen(t, "")
}
