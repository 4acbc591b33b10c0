"""Styles of `evenlane top`: in the terminal's own colours, and readable without any."""

CSS = """
Screen { background: ansi_default; color: ansi_default; }
#head { height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
#message { text-style: bold; max-height: 3; }
#message.lost { color: ansi_red; }
#columns { height: 1; text-style: bold underline; text-wrap: nowrap; }
#tenants { height: 1fr; border: none; padding: 0; background: ansi_default; scrollbar-size-vertical: 1;
  text-wrap: nowrap; text-overflow: clip; }
#tenants:focus { border: none; }
#tenants > .option-list--option { padding: 0; }
#tenants > .option-list--option-highlighted { background: ansi_default; color: ansi_default; text-style: none; }
#tenants:focus > .option-list--option-highlighted { background: ansi_default; color: ansi_default; text-style: none; }
#rest { text-style: dim; }
#nodes { margin-top: 1; }
#why { height: 45%; display: none; border-top: solid ansi_blue; }
#filter { display: none; height: 1; border: none; }
Footer { background: ansi_default; }
ModalScreen { align: center middle; background: ansi_default; }
.dialog { width: auto; max-width: 100%; height: auto; max-height: 100%; border: solid ansi_blue; padding: 0 1; }
.dialog > Static { width: auto; max-width: 100%; }
"""
