// The search of the site runs in a worker. Browsers start no worker for a page that comes from the disk, so such a page
// runs it in a hidden frame. The theme would load a script with this name from another host.

if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      this.loaded = new Promise((resolve) => frame.addEventListener("load", () => resolve(frame.contentWindow)));
      document.body.append(frame);
      const inside = frame.contentDocument;
      inside.open();
      frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.write(`<script src="${encodeURI(decodeURI(url))}"><\/script>`);
      inside.close();
    }

    postMessage(data) {
      this.loaded.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
  window.Worker = window.IFrameWorker;
}
