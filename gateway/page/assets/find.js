// Answers a search while the user types, and remembers the chosen client.
(() => {
  'use strict';

  const pause = 150; // milliseconds without a key before a request
  const box = document.querySelector('#q');

  document.addEventListener('keydown', (event) => {
    const busy = event.target.closest('input:not([type=radio]), textarea, select, [contenteditable]');
    if (event.key === '/' && box && !busy && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      box.focus();
      box.select();
    }
  });

  const form = box?.closest('form[data-suggest]');
  if (form) {
    const list = document.createElement('ul');
    list.className = 'suggestions';
    list.hidden = true;
    const status = document.createElement('p');
    status.className = 'hidden';
    status.setAttribute('role', 'status');
    form.append(list, status);

    const hide = () => {
      list.hidden = true;
      status.textContent = '';
    };
    const show = ({found, total}) => {
      list.replaceChildren(...found.map(({kind, address, page}) => {
        const link = document.createElement('a');
        link.href = new URL(page, form.action);
        link.textContent = address;
        if (kind === 'module') {
          const tag = document.createElement('span');
          tag.className = 'tag';
          tag.textContent = kind;
          link.append(' ', tag);
        }
        const item = document.createElement('li');
        item.append(link);
        return item;
      }));
      list.hidden = found.length === 0;
      status.textContent = total || (found.length ? found[0].address : 'Nothing found');
    };

    let timer, request;
    const ask = async () => {
      const mine = request = new AbortController();
      try {
        const answer = await fetch(`${form.action}?suggest&q=${encodeURIComponent(box.value)}`, {signal: mine.signal});
        const found = answer.ok ? await answer.json() : {found: []};
        if (!mine.signal.aborted) {
          show(found);
        }
      } catch {
        if (!mine.signal.aborted) {
          hide();
        }
      }
    };
    box.addEventListener('input', () => {
      clearTimeout(timer);
      request?.abort();
      if (box.value.trim() === '') {
        hide();
      } else {
        timer = setTimeout(ask, pause);
      }
    });

    form.addEventListener('keydown', (event) => {
      const stops = [box, ...list.querySelectorAll('a')];
      const at = stops.indexOf(document.activeElement);
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (event.key === 'Escape' && !list.hidden) {
        event.preventDefault();
        box.focus();
        hide();
      } else if (step && at >= 0 && !list.hidden) {
        event.preventDefault();
        stops[Math.min(Math.max(at + step, 0), stops.length - 1)].focus();
      }
    });
    form.addEventListener('focusout', (event) => {
      if (!form.contains(event.relatedTarget)) {
        hide();
      }
    });
  }

  const tabs = document.querySelector('.tabs');
  if (tabs) {
    const key = 'ocibridge client';
    tabs.classList.add('live');
    const choose = (id) => {
      const tab = id && document.getElementById(`tab-${id}`);
      if (tab) {
        tab.checked = true;
      }
      return tab;
    };
    try {
      choose(localStorage.getItem(key));
    } catch {
      // This browser stores nothing.
    }
    const follow = () => {
      const id = location.hash.slice(1);
      if (choose(id)) {
        document.getElementById(id).scrollIntoView();
      }
    };
    follow();
    window.addEventListener('hashchange', follow);
    tabs.addEventListener('change', (event) => {
      try {
        localStorage.setItem(key, event.target.id.slice('tab-'.length));
      } catch {
        // This browser stores nothing.
      }
    });
  }
})();
