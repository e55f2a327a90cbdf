//! From a function to the type that stands for it.
//!
//! A type, and not a constant of the same name: a pattern such as `order` in `fn order(order: Order)` would then mean the
//! constant. Types and functions have namespaces of their own.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;
use syn::{Error, FnArg, ItemFn, Result, ReturnType, Signature, Type};

/// What the function becomes.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Workflow,
    Task,
}

impl Kind {
    fn marker(self) -> Ident {
        match self {
            Self::Workflow => format_ident!("Workflow"),
            Self::Task => format_ident!("Task"),
        }
    }
}

pub(crate) fn expand(arguments: &TokenStream, item: &ItemFn, kind: Kind) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(arguments, "this attribute takes no arguments"));
    }
    check(&item.sig)?;
    let types = argument_types(&item.sig)?;
    let output = match &item.sig.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, output) => quote!(#output),
    };
    let (visibility, name) = (&item.vis, &item.sig.ident);
    let text = name.unraw().to_string();
    let doc = format!("The function [`{text}`]({text}()), as a type that stands for it in calls.");
    let places: Vec<Ident> = (0..types.len()).map(|place| format_ident!("argument_{place}")).collect();
    let (input, pattern) = match (&types[..], &places[..]) {
        ([one], [place]) => (quote!(#one), quote!(#place)),
        _ => (quote!((#(#types),*)), quote!((#(#places),*))),
    };
    let marker = kind.marker();
    Ok(quote! {
        #item

        #[doc = #doc]
        #[expect(non_camel_case_types, reason = "it has the name of its function")]
        #visibility enum #name {}

        impl ::onward::Function for #name {
            type Input = #input;
            type Output = <#output as ::onward::Returned>::Output;
            const NAME: &'static str = #text;
            const KIND: ::onward::Kind = ::onward::Kind::#marker;

            fn run(#pattern: Self::Input) -> ::onward::Result<Self::Output> {
                ::onward::Returned::into_result(#name(#(#places),*))
            }
        }

        impl ::onward::#marker for #name {}
    })
}

fn check(signature: &Signature) -> Result<()> {
    if let Some(token) = &signature.asyncness {
        return Err(Error::new_spanned(token, "write it without async: waiting is what `wait` and `invoke` do"));
    }
    if let Some(token) = &signature.unsafety {
        return Err(Error::new_spanned(token, "the host calls this function: it must be safe"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, "the host calls this function: its types must be known"));
    }
    Ok(())
}

fn argument_types(signature: &Signature) -> Result<Vec<&Type>> {
    signature.inputs.iter().map(argument_type).collect()
}

fn argument_type(argument: &FnArg) -> Result<&Type> {
    match argument {
        FnArg::Receiver(receiver) => Err(Error::new_spanned(receiver, "a method cannot be called by the host")),
        FnArg::Typed(typed) => match &*typed.ty {
            Type::Reference(reference) => {
                Err(Error::new_spanned(reference, "take an owned value: it is read from the journal"))
            }
            owned => Ok(owned),
        },
    }
}
