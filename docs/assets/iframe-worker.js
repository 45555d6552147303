// Pages opened as files may start no workers, and the search is one: a hidden frame takes its place.
(() => {
  if (location.protocol !== "file:") return;
  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inner = frame.contentWindow;
      this.waiting = [];
      this.inner.importScripts = () => Promise.resolve();
      this.inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = this.inner.document.createElement("script");
      script.src = new URL(url, location.href);
      script.onload = () => {
        const held = this.waiting;
        this.waiting = null;
        held.forEach((data) => this.postMessage(data));
      };
      this.inner.document.body.appendChild(script);
    }
    postMessage(data) {
      if (this.waiting) {
        this.waiting.push(data);
        return;
      }
      const event = new this.inner.MessageEvent("message", { data });
      this.inner.dispatchEvent(event);
    }
    terminate() {}
  }
  window.Worker = FrameWorker;
})();
