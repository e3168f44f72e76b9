// Adds a button to everything that can be copied.
(() => {
  'use strict';

  const status = document.createElement('p');
  status.className = 'hidden';
  status.setAttribute('role', 'status');
  document.querySelector('main').append(status);

  // Pages that did not come by TLS have no clipboard but the old one.
  const copy = async (text) => {
    if (navigator.clipboard) {
      return navigator.clipboard.writeText(text);
    }
    const focused = document.activeElement;
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'hidden';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    focused.focus();
    if (!done) {
      throw new Error('not allowed');
    }
  };

  for (const element of document.querySelectorAll('[data-copy]')) {
    const what = element.dataset.copy;
    const button = document.createElement('button');
    let back;
    const show = (word) => {
      button.textContent = word;
      button.setAttribute('aria-label', `${word} ${what}`);
    };
    button.type = 'button';
    button.className = 'copy';
    show('Copy');
    button.addEventListener('click', async () => {
      let word = 'Copied';
      try {
        await copy(element.querySelector('code').textContent);
      } catch {
        word = 'Not copied';
      }
      show(word);
      status.textContent = `${word} ${what}`;
      clearTimeout(back);
      back = setTimeout(() => show('Copy'), 2000);
    });
    element.append(button);
  }
})();
